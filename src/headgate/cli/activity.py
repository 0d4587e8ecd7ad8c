"""`headgate changes`, `events`, `events show`, `violators` and `users story`: what happened, and to whom."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.analytics import who
from headgate.cli.options import Json, Limit, Text, Token, Url, moment_of
from headgate.cli.output import moment, print_fields, print_json, print_line, print_more, print_rows
from headgate.cli.quota import print_limits
from headgate.cli.tables import printable
from headgate.cli.verdict_table import span
from headgate.errors import short_repr

_STYLES = {"denied": "red", "blocked": "red", "throttled": "yellow", "shadow": "yellow", "allowed": "green"}
_FOLLOWING = {"tier_since", "version"}
"""Fields that have another value because another one has."""
_MAX_LENGTH = 60


def changes(
    kind: Annotated[Text, typer.Option(help="Only of a rule, tier, user, api_key, block or token.")] = None,
    name: Annotated[Text, typer.Option(help="Only of the one with this name or id.")] = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show who changed what, the newest first."""
    with admin(url, token) as client:
        found, more = client.some(at("changes"), limit, kind=kind, name=name)
    if as_json:
        print_json(found)
        return
    print_changes(found)
    if more:
        print_more(limit)


def events(
    context: typer.Context,
    user: Annotated[Text, typer.Option(help="Only of this user.")] = None,
    rule: Annotated[Text, typer.Option(help="Only by this rule.")] = None,
    decision: Annotated[Text, typer.Option(help="Only allowed, denied, throttled, blocked or shadow.")] = None,
    since: Annotated[Text, typer.Option(metavar="WHEN", help="From a time on, or from a span ago, as in 24h.")] = None,
    until: Annotated[Text, typer.Option(metavar="WHEN", help="Up to a time, or up to a span ago.")] = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show recorded decisions, the newest first."""
    if context.invoked_subcommand is not None:
        return
    narrowed = {
        "user": user,
        "rule": rule,
        "decision": decision,
        "since": moment_of(since, "--since", ahead=False),
        "until": moment_of(until, "--until", ahead=False),
    }
    with admin(url, token) as client:
        found, more = client.some(at("events"), limit, **narrowed)
    if as_json:
        print_json(found)
        return
    print_events(found)
    if more:
        print_more(limit)


def violators(
    rule: Annotated[Text, typer.Option(help="Only by this rule.")] = None,
    by: Annotated[Text, typer.Option(help="Group by user, api_key, ip, or anybody: user, else key, else ip.")] = None,
    since: Annotated[Text, typer.Option(metavar="WHEN", help="From a time on, or from a span ago, as in 24h.")] = None,
    until: Annotated[Text, typer.Option(metavar="WHEN", help="Up to a time, or up to a span ago.")] = None,
    limit: Limit = 10,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show who was denied most, of the last day unless told."""
    with admin(url, token) as client:
        between = {
            "since": moment_of(since, "--since", ahead=False),
            "until": moment_of(until, "--until", ahead=False),
        }
        found, _ = client.some(at("violators"), limit, rule=rule, by=by, **between)
    if as_json:
        print_json(found)
        return
    rows = [(who(each), f"{each['violations']:,}", moment(each["last"])) for each in found]
    headings = ("user" if by in {None, "user"} else "who", "denied", "last (UTC)")
    print_rows(headings, rows, numbers=["denied"])


def print_changes(changes: Sequence[dict[str, Any]]) -> None:
    """A table of changes."""
    headings = ("change", "at (UTC)", "who", "what", "done", "difference")
    rows = [_change(each) for each in changes]
    print_rows(headings, rows, numbers=["change"], whole=["who", "difference"], below=["difference"])


def print_events(events: Sequence[dict[str, Any]]) -> None:
    """A table of events."""
    headings = ("at (UTC)", "decision", "user", "request", "rule", "retry in", "id")
    print_rows(headings, [_event(each) for each in events], numbers=["retry in"], whole=["id"], below=["id"])


def _change(change: dict[str, Any]) -> tuple[str, ...]:
    done = difference(change["before"], change["after"])
    return str(change["id"]), moment(change["at"]), change["who"], _what(change), change["verb"], done


def _what(change: dict[str, Any]) -> str:
    """What was changed, by the name that people have for it."""
    kind, name = change["kind"].replace("api_key", "key"), change["name"]
    if name == "*":
        return f"{kind}s"
    known = change["after"] or change["before"] or {}
    said = next((known[member] for member in ("name", "user", "network", "api_key") if known.get(member)), name)
    return f"{kind} {said if kind in {'key', 'block', 'token'} else name}"


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The fields that have another value: ``price 0 → 49``."""
    if before is None or after is None:
        return ""
    return "; ".join(_differences(before, after))


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new)
        elif old != new and name not in _FOLLOWING:
            yield f"{name} {_value(old)} → {_value(new)}"


def _value(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else value
    text = text if isinstance(text, str) else short_repr(text)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def coloured(decision: str) -> Styled:
    """What became of a request, in its colour."""
    return Styled(decision, _STYLES.get(decision, ""))


def _event(event: dict[str, Any]) -> tuple[str | Styled, ...]:
    request = " ".join(word for word in (event["method"], event["endpoint"]) if word)
    wait = "" if event["retry_after"] is None else span(event["retry_after"])
    when, user = moment(event["at"], precise=True), event["user"] or event["ip"] or ""
    stands_for = event.get("stands_for", 1)
    decision = coloured(event["decision"]) if stands_for == 1 else f"{event['decision']} × {stands_for:,}"
    return when, decision, user, request, event["rule"] or "", wait, event["id"]


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
    print_line(Styled.assemble((printable(user), "bold"), printable(tier)))
    for block in found["blocks"]:
        until = f" until {moment(block['until'])}" if block["until"] else ""
        reason = printable(block["reason"] or "no reason given")
        print_line(Styled(f"blocked{until}: {reason}", "red"))
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
    print_line(Styled(f"\n{title}", "bold"))


def _costs(costs: dict[str, int]) -> str:
    return ", ".join(f"{rule} {cost:,}" for rule, cost in sorted(costs.items()))


def _decided(event: dict[str, Any]) -> str:
    duration = "" if event["latency"] is None else f"in {1_000 * event['latency']:.3g} ms"
    where = " ".join(word for word in (event["server"], event["region"]) if word)
    source = f"({event['source']})" if event["source"] else ""
    return " ".join(word for word in (duration, f"by {where}" if where else "", source) if word)


def _limits(rule: dict[str, Any] | None) -> list[str]:
    limits = (rule or {}).get("limits") or []
    return [limits] if isinstance(limits, str) else [str(limit) for limit in limits]
