"""`headgate users`: who there is, on which tier, with which limits of their own."""

from typing import Annotated, Any, TypeAlias

import typer

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Limit, Text, Token, Url, in_words
from headgate.cli.output import moment, print_done, print_fields, print_json, print_more, print_rows
from headgate.errors import InvalidRequest

_User: TypeAlias = Annotated[str, typer.Argument(metavar="USER", help="The user's id.", show_default=False)]


def list_users(
    tier: Annotated[Text, typer.Option(help="Only those on this tier.")] = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """List users, by their ids."""
    with admin(url, token) as client:
        users, more = client.some(at("users"), limit, tier=tier)
    if as_json:
        print_json(users)
        return
    headings = ("user", "tier", "today", "this month", "exceeded", "last request (UTC)", "own limits")
    print_rows(
        headings, [_row(user) for user in users], numbers=["today", "this month", "exceeded"], long=["own limits"]
    )
    if more:
        print_more(limit)


def show(user: _User, url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """Show one user."""
    with admin(url, token, decides=True) as client:  # when the quota resets, the limiter says
        found = client.get(at("users", user))
    if as_json:
        print_json(found)
        return
    since = f" since {moment(found['tier_since'])}" if found["tier"] and found["tier_since"] else ""
    print_fields(
        {
            "user": found["id"],
            "tier": f"{found['tier']}{since}" if found["tier"] else "the default tier",
            "own limits": in_words(found["overrides"]),
            "dormant limits": in_words(found["dormant_overrides"]),
            "requests": f"{found['requests_today']} today, {found['requests_month']} this month",
            "exceeded": f"{found['times_exceeded']} times" if found["times_exceeded"] else "",
            "last request": moment(found["last_request"]),
            "quota resets": moment(found["quota_reset_at"]),
            "reset by operator": moment(found["quota_reset"]),
            "changed": f"{moment(found['updated_at'])} (version {found['version']})",
        }
    )


def set_user(
    user: _User,
    tier: Annotated[Text, typer.Option(help="The tier to be on.")] = None,
    url: Url = None,
    token: Token = None,
    *,
    no_tier: Annotated[bool, typer.Option("--no-tier", help="To be on the default tier.")] = False,
    as_json: Json = False,
) -> None:
    """Make a user known, or put one on another tier. Their own limits stay."""
    if tier is not None and no_tier:
        msg = "--tier and --no-tier exclude each other; keep one of them"
        raise InvalidRequest(msg)
    with admin(url, token) as client:
        known = client.find(at("users", user))
        if known is None:
            made = client.post(at("users"), {"id": user, "tier": tier})
        else:
            chosen = None if no_tier else known["tier"] if tier is None else tier
            made = client.put(at("users", user), {"tier": chosen, "overrides": known["overrides"]}, known["version"])
    if as_json:
        print_json(made)
    else:
        on = f"on {made['tier']}" if made["tier"] else "on the default tier"
        print_done("created" if known is None else "changed", f"user {user}, {on}")


def delete(user: _User, url: Url = None, token: Token = None) -> None:
    """Delete a user, with their own limits and API keys."""
    with admin(url, token) as client:
        client.delete(at("users", user))
    print_done("deleted", f"user {user}")


def override(
    user: _User,
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
    """Give a user limits of their own, in place of a rule's."""
    if remove == bool(limits):
        msg = "write the limits, as in 'headgate users override u_42 search 500/hour', or --remove"
        raise InvalidRequest(msg)
    path = at("users", user, "overrides", rule)
    with admin(url, token) as client:
        if remove:
            client.delete(path)
            found = client.get(at("users", user))
        else:
            found = client.put(path, {"limits": limits})
    if as_json:
        print_json(found)
    elif remove:
        print_done("removed", f"override of {rule} for user {user}; the limits of the rule apply")
    else:
        print_done("changed", f"user {user}: {in_words({rule: found['overrides'][rule]})}")


def _row(user: dict[str, Any]) -> tuple[str, ...]:
    return (
        user["id"],
        user["tier"] or "",
        str(user["requests_today"]),
        str(user["requests_month"]),
        str(user["times_exceeded"]),
        moment(user["last_request"]),
        in_words(user["overrides"]),
    )
