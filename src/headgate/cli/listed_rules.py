"""`headgate rules list` and `headgate rules show`: the rules of the database, for people."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Limit, Token, Url
from headgate.cli.output import moment, print_fields, print_json, print_more, print_rows

_SHOWN_APART = frozenset({"name", "enabled", "match"})


def list_rules(limit: Limit = 100, url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """List the rules of the database, by name."""
    with admin(url, token) as client:
        found, more = client.some(at("rules"), limit)
    if as_json:
        print_json(found)
        return
    headings = ("rule", "limits", "per", "where", "action", "layer", "state", "owner")
    print_rows(headings, [_row(rule) for rule in found], whole=["rule", "limits"], long=["where"])
    if more:
        print_more(limit)


def show_rule(
    name: Annotated[str, typer.Argument(metavar="RULE", help="The rule's name.", show_default=False)],
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show one rule with all of its fields, its owner and its last change."""
    with admin(url, token) as client:
        rule = client.get(at("rules", name))
    if as_json:
        print_json(rule)
        return
    data = _data(rule)
    print_fields(
        {
            "rule": rule["name"],
            "state": _state(rule),
            "where": where(data),
            **{field: _in_words(value) for field, value in data.items() if field not in _SHOWN_APART},
            "owner": rule["owner"] or "",
            "version": str(rule["version"]),
            "changed (UTC)": f"{moment(rule['updated_at'])} by {rule['updated_by']}",
        }
    )


def _row(rule: dict[str, Any]) -> tuple[str, ...]:
    data = _data(rule)
    return (
        rule["name"],
        _in_words(data.get("limits")),
        _in_words(data.get("per")),
        where(data),
        data["action"],
        data.get("layer") or "",
        _state(rule),
        rule["owner"] or "",
    )


def _data(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The rule as it is active; a rule that was never published has only a draft."""
    data: dict[str, Any] = rule["data"] or rule["draft"]
    return data


def _state(rule: Mapping[str, Any]) -> str:
    if rule["data"] is None:
        return "draft"
    word = "active" if rule["data"]["enabled"] else "disabled"
    return word if rule["draft"] is None else f"{word}, with a draft"


def where(data: Mapping[str, Any]) -> str:
    """What a rule applies to: ``GET /api/search``."""
    match = data.get("match") or {}
    conditions = [
        *(word for name in ("methods", "endpoints", "ip_ranges", "tiers", "users") for word in match.get(name) or ()),
        *(f"{name}={value}" for name, value in (match.get("attributes") or {}).items()),
    ]
    return " ".join(map(str, conditions)) or "everywhere"


def _in_words(value: object) -> str:
    """A field's value: ``10/minute, 100/hour``, ``default 1, POST 5``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
