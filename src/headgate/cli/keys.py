"""`headgate keys`: API keys, which are shown once and stored as a hash."""

from typing import Annotated, Any, TypeAlias

import typer
from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Limit, OwnLimits, Quiet, Text, Token, Url, in_words, limits_of, moment_of
from headgate.cli.output import (
    moment,
    print_done,
    print_fields,
    print_json,
    print_more,
    print_note,
    print_rows,
    print_secret,
    state,
)
from headgate.core.units import SECOND, parse_duration
from headgate.errors import InvalidRequest

_Key: TypeAlias = Annotated[str, typer.Argument(metavar="KEY", help="The key's id.", show_default=False)]


def list_keys(
    user: Annotated[Text, typer.Option(help="Only those of this user.")] = None,
    in_state: Annotated[Text, typer.Option("--state", help="Only those that are active, expired or revoked.")] = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """List API keys; of each only the first characters are known."""
    with admin(url, token) as client:
        keys, more = client.some(at("keys"), limit, user=user, state=in_state)
    if as_json:
        print_json(keys)
        return
    headings = ("key", "begins", "name", "user", "state", "requests", "last used (UTC)")
    print_rows(headings, [_row(key) for key in keys], numbers=["requests"], whole=["key", "begins"], below=["key"])
    if more:
        print_more(limit)


def show(key: _Key, url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """Show one API key."""
    with admin(url, token) as client:
        found = client.get(at("keys", key))
    if as_json:
        print_json(found)
    else:
        _print(found)


def usage(
    key: Annotated[Text, typer.Argument(metavar="KEY", help="One key's id; all of them without it.")] = None,
    first: Annotated[Text, typer.Option("--from", metavar="DAY", help="The first day, as in 2030-01-31.")] = None,
    last: Annotated[Text, typer.Option("--to", metavar="DAY", help="The last day; today unless told.")] = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show how many requests came with API keys on each day."""
    with admin(url, token) as client:
        found, more = client.some(at("usage", "keys"), limit, key=key, from_=first, to=last)
    if as_json:
        print_json(found)
        return
    numbers = ("requests", "denied")
    rows = [(each["day"], each["api_key"], *(f"{each[name]:,}" for name in numbers)) for each in found]
    print_rows(("day", "key", *numbers), rows, numbers=numbers, whole=["key"])
    if more:
        print_more(limit)


def create(
    name: Annotated[Text, typer.Option(help="What the key is for.")] = None,
    user: Annotated[Text, typer.Option(help="Whose key it is.")] = None,
    tenant: Annotated[Text, typer.Option(help="The tenant that its requests belong to.")] = None,
    tier: Annotated[Text, typer.Option(help="The tier that its requests are on, in place of the user's.")] = None,
    limit: OwnLimits = None,
    expires: Annotated[Text, typer.Option(metavar="WHEN", help="A time, or a span from now such as 90d.")] = None,
    url: Url = None,
    token: Token = None,
    *,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make an API key and show it, this one time."""
    members = {
        "name": name,
        "user": user,
        "tenant": tenant,
        "tier": tier,
        "limits": limits_of(limit) or None,
        "expires_at": moment_of(expires, "--expires"),
    }
    with admin(url, token) as client:
        made = client.post(at("keys"), {name: value for name, value in members.items() if value is not None})
    _print_made("created", made, quiet=quiet, as_json=as_json)


def limit_key(
    key: _Key,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="The rule whose limits it replaces.", show_default=False)],
    limits: Annotated[
        list[str] | None, typer.Argument(metavar="LIMIT...", help="The limits, as in 5/minute.", show_default=False)
    ] = None,
    url: Url = None,
    token: Token = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Let the rule's own limits hold again.")] = False,
    as_json: Json = False,
) -> None:
    """Give an API key limits of its own, in place of a rule's."""
    if remove == bool(limits):
        msg = f"write the limits, as in 'headgate keys limit {key} search 500/hour', or --remove"
        raise InvalidRequest(msg)
    path = at("keys", key, "limits", rule)
    with admin(url, token) as client:
        if remove:
            client.delete(path)
            found = client.get(at("keys", key))
        else:
            found = client.put(path, {"limits": limits})
    if as_json:
        print_json(found)
    elif remove:
        print_done("removed", f"limits of key {key} for {rule}; the limits of the rule apply")
    else:
        print_done("changed", f"key {key}: {in_words({rule: found['limits'][rule]})}")


def rotate(
    key: _Key,
    overlap: Annotated[
        Text,
        typer.Option(metavar="SPAN", help="For how long the old key stays good, as in 1h; not at all unless told."),
    ] = None,
    url: Url = None,
    token: Token = None,
    *,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Replace an API key by a new one with the same owner, tier and limits, and show that, this one time."""
    seconds = 0 if overlap is None else parse_duration(overlap) // SECOND
    with admin(url, token) as client:
        made = client.post(at("keys", key, "rotate"), {"overlap_seconds": seconds})
    _print_made("rotated", made, quiet=quiet, as_json=as_json)
    if not quiet and not as_json:
        print_note(
            f"The old one, {key}, is good for another {overlap}." if seconds else f"The old one, {key}, has ended."
        )


def revoke(key: _Key, url: Url = None, token: Token = None) -> None:
    """End an API key, at once and for good."""
    with admin(url, token) as client:
        client.post(at("keys", key, "revoke"))
    print_done("revoked", f"key {key}")


def _print_made(word: str, made: dict[str, Any], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    if not quiet:
        print_done(word, "an API key" if word == "created" else "the API key; the new one is")
        _print(made["key"])
    print_secret(made["secret"], alone=quiet)


def _row(key: dict[str, Any]) -> tuple[str | Styled, ...]:
    return (
        key["id"],
        f"{key['prefix']}…",
        key["name"] or "",
        key["user"] or "",
        state(key["state"]),
        f"{key['requests']:,}",
        moment(key["last_used"]),
    )


def _print(key: dict[str, Any]) -> None:
    revoked = f"{moment(key['revoked_at'])} by {key['revoked_by']}" if key["revoked_at"] else ""
    print_fields(
        {
            "key": key["id"],
            "begins": f"{key['prefix']}…",
            "name": key["name"] or "",
            "state": state(key["state"]),
            "user": key["user"] or "",
            "tenant": key["tenant"] or "",
            "tier": key["tier"] or "",
            "own limits": in_words(key["limits"]),
            "dormant limits": in_words(key["dormant_limits"]),
            "expires": moment(key["expires_at"]),
            "last used": moment(key["last_used"]),
            "requests": f"{key['requests']:,}, {key['requests_today']:,} of them today (UTC)",
            "revoked": revoked,
            "replaced by": key["rotated_to"] or "",
            "created": f"{moment(key['created_at'])} by {key['created_by']}",
        }
    )
