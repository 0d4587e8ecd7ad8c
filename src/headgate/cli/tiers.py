"""`headgate tiers`: the plans that users are on."""

from typing import Annotated, Any, TypeAlias

import typer

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, OwnLimits, Text, Token, Url, in_words, limits_of
from headgate.cli.output import moment, print_applied, print_done, print_fields, print_json, print_rows
from headgate.errors import InvalidRequest, short_repr

_EVERY = 10_000
_Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The tier's name.", show_default=False)]


def list_tiers(url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """List all tiers with their prices and limits."""
    with admin(url, token) as client:
        tiers, _ = client.some(at("tiers"), _EVERY)
    if as_json:
        print_json(tiers)
        return
    headings = ("tier", "called", "price", "limits")
    print_rows(headings, [_row(tier) for tier in tiers], numbers=["price"], long=["limits"])


def show(name: _Name, url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """Show one tier."""
    with admin(url, token) as client:
        tier = client.get(at("tiers", name))
    if as_json:
        print_json(tier)
        return
    print_fields(
        {
            "tier": tier["name"],
            "called": tier["display_name"] or "",
            "price": f"{tier['price']:g}",
            "limits": [in_words({limit: among}) for limit, among in tier["limits"].items()],
            "default": "callers without a known tier are on this one" if tier["is_default"] else "",
            "changed": f"{moment(tier['updated_at'])} (version {tier['version']})",
        }
    )


def set_tier(
    name: _Name,
    display_name: Annotated[Text, typer.Option(help="What people call it.")] = None,
    price: Annotated[float | None, typer.Option(min=0, help="What it costs.")] = None,
    limit: OwnLimits = None,
    drop_limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A limit to take away. Can be repeated.")
    ] = None,
    url: Url = None,
    token: Token = None,
    *,
    default: Annotated[bool, typer.Option("--default", help="Put callers without a known tier on it.")] = False,
    as_json: Json = False,
) -> None:
    """Make a tier, or change what is said of one; what is not said stays."""
    with admin(url, token) as client:
        tier = client.find(at("tiers", name))
        changed = _changed(tier, display_name, price, limit, drop_limit)
        if default:
            changed["is_default"] = True
        if tier is None:
            made = client.post(at("tiers"), {"name": name, **changed})
        else:
            made = client.put(at("tiers", name), changed, tier["version"])
    if as_json:
        print_json(made)
    else:
        print_done("created" if tier is None else "changed", f"tier {name}: {in_words(made['limits']) or 'no limits'}")
        print_applied(client.applied)


def delete(name: _Name, url: Url = None, token: Token = None) -> None:
    """Delete a tier that no user, key or rule needs."""
    with admin(url, token) as client:
        client.delete(at("tiers", name))
    print_done("deleted", f"tier {name}")
    print_applied(client.applied)


def _row(tier: dict[str, Any]) -> tuple[str, ...]:
    name = f"{tier['name']} (default)" if tier["is_default"] else tier["name"]
    return name, tier["display_name"] or "", f"{tier['price']:g}", in_words(tier["limits"])


def _changed(
    tier: dict[str, Any] | None,
    display_name: str | None,
    price: float | None,
    limits: list[str] | None,
    dropped: list[str] | None,
) -> dict[str, Any]:
    """What the tier is to be, from what it is."""
    known = tier or {"display_name": None, "price": 0, "limits": {}, "is_default": False}
    if unknown := set(dropped or ()) - known["limits"].keys():
        msg = f"--drop-limit: the tier has no limit {short_repr(min(unknown))}"
        raise InvalidRequest(msg)
    kept = {name: among for name, among in known["limits"].items() if name not in (dropped or ())}
    return {
        "display_name": known["display_name"] if display_name is None else display_name or None,
        "price": known["price"] if price is None else price,
        "limits": kept | limits_of(limits),
        "is_default": known["is_default"],
    }
