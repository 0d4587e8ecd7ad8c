"""`headgate events show` and `headgate users story`: one decision, and one user, with all that is known."""

from typing import Annotated, Any

import typer
from rich.text import Text as Styled

from headgate.cli.activity import coloured, print_changes, print_events
from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Token, Url
from headgate.cli.output import console, moment, print_fields, print_json, print_rows
from headgate.cli.quota import print_limits
from headgate.cli.rows import printable
from headgate.cli.verdict_table import span

_LATELY = 10


def show_event(
    id: Annotated[str, typer.Argument(metavar="ID", help="The decision's id.", show_default=False)],  # noqa: A002 (events have ids)
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show one recorded decision: what was asked, what was answered, and the rule as it stood then."""
    with admin(url, token) as client:
        event = client.get(at("events", id))
    if as_json:
        print_json(event)
        return
    used = "" if event["limit"] is None else f"{event['count']:,} of {event['limit']:,}"
    retry = "" if event["retry_after"] is None else f"retry in {span(event['retry_after'])}"
    answered = ", ".join(word for word in (f"{event['status']}", retry) if word)
    print_fields(
        {
            "decision": Styled.assemble(coloured(event["decision"]), f" by {event['rule']}" if event["rule"] else ""),
            "at": event["at"],
            "answered": answered,
            "used": used,
            "cost": "" if event["cost"] is None else str(event["cost"]),
            "user": event["user"] or "",
            "tenant": event["tenant"] or "",
            "api key": event["api_key"] or "",
            "address": event["ip"] or "",
            "tier": event["tier"] or "",
            "request": " ".join(word for word in (event["method"], event["endpoint"]) if word),
            **{name: str(value) for name, value in (event["extra"] or {}).items()},
            "decided": _decided(event),
            "rules": "" if event["snapshot"] is None else f"snapshot {event['snapshot']}",
            "limits then": ", ".join(_limits(event["rule_then"])),
            "id": event["id"],
        }
    )


def story(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's id.", show_default=False)],
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show what is known of a user: days, events, limits, blocks, changes."""
    with admin(url, token, decides=True) as client:
        found = client.get(at("users", user, "story"))
    if as_json:
        print_json(found)
        return
    tier = f", tier {found['tier']}" if found["tier"] else ""
    console().print(Styled.assemble((printable(user), "bold"), printable(tier)), soft_wrap=True)
    for block in found["blocks"]:
        until = f" until {moment(block['until'])}" if block["until"] else ""
        reason = printable(block["reason"] or "no reason given")
        console().print(Styled(f"blocked{until}: {reason}", "red"), soft_wrap=True)
    _part("Days")
    days = [
        (each["day"], f"{each['requests']:,}", f"{each['denied']:,}", _costs(each["costs"])) for each in found["days"]
    ]
    print_rows(("day", "requests", "denied", "charged"), days, numbers=["requests", "denied"], long=["charged"])
    _part("Limits, the fullest first")
    print_limits(found["limits"][:_LATELY])
    _part("Events")
    print_events(found["events"][:_LATELY])
    _part("Changes")
    print_changes(found["changes"][:_LATELY])


def _part(title: str) -> None:
    console().print(Styled(f"\n{title}", "bold"))


def _costs(costs: dict[str, int]) -> str:
    return ", ".join(f"{rule} {cost:,}" for rule, cost in sorted(costs.items()))


def _decided(event: dict[str, Any]) -> str:
    took = "" if event["latency"] is None else f"in {1_000 * event['latency']:.3g} ms"
    where = " ".join(word for word in (event["server"], event["region"]) if word)
    source = f"({event['source']})" if event["source"] else ""
    return " ".join(word for word in (took, f"by {where}" if where else "", source) if word)


def _limits(rule: dict[str, Any] | None) -> list[str]:
    limits = (rule or {}).get("limits") or []
    return [limits] if isinstance(limits, str) else [str(limit) for limit in limits]
