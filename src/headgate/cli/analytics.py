"""`headgate metrics`, `endpoints`, `near-limits` and `utilisation`: counts, times, and shares of limits."""

from typing import Annotated, Any, TypeAlias

import typer
from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Limit, Text, Token, Url, moment_of
from headgate.cli.output import moment, print_json, print_more, print_note, print_rows
from headgate.controlplane.analytics import Granularity, Order

_Since: TypeAlias = Annotated[
    Text, typer.Option("--since", metavar="WHEN", help="From a time on, or from a span ago, as in 24h.")
]
_Until: TypeAlias = Annotated[Text, typer.Option("--until", metavar="WHEN", help="Up to a time, or up to a span ago.")]
_QUANTILES = ("p50", "p95", "p99")
_MILLISECONDS = tuple(f"{name} ms" for name in _QUANTILES)
_FULL, _NEAR = 1.0, 0.8


def metrics(
    granularity: Annotated[Granularity, typer.Option(help="By minute, hour or day.")] = Granularity.HOUR,
    by: Annotated[
        Text, typer.Option(metavar="NAMES", help="Group by rule, endpoint, tier, region or user: rule,tier.")
    ] = None,
    rule: Annotated[Text, typer.Option(help="Only of this rule.")] = None,
    endpoint: Annotated[Text, typer.Option(help="Only of this endpoint.")] = None,
    tier: Annotated[Text, typer.Option(help="Only of this tier.")] = None,
    region: Annotated[Text, typer.Option(help="Only of this region.")] = None,
    user: Annotated[Text, typer.Option(help="Only of this user.")] = None,
    since: _Since = None,
    until: _Until = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show how many requests there were, what became of them, and how long decisions took."""
    query = {
        "granularity": granularity.value,
        "by": by,
        "rule": rule,
        "endpoint": endpoint,
        "tier": tier,
        "region": region,
        "user": user,
    }
    with admin(url, token) as client:
        found, more = client.some(at("metrics"), limit, **query, **_between(since, until))
    if as_json:
        print_json(found)
        return
    dimensions = [name for name in ("rule", "endpoint", "tier", "region", "user") if name in (by or "").split(",")]
    kinds = [
        kind
        for kind in ("total", "denied", "throttled", "blocked", "shadow", "degraded")
        if kind in {"total", "denied"} or any(each[kind] for each in found)
    ]
    is_timed = user is None and "user" not in dimensions
    rows = [
        (
            moment(each["at"]),
            *(each[name] or "none" for name in dimensions),
            *(f"{each[kind]:,}" for kind in kinds),
            *(_times(each) if is_timed else ()),
        )
        for each in found
    ]
    numbers = (*kinds, *(_MILLISECONDS if is_timed else ()))
    print_rows(("at (UTC)", *dimensions, *numbers), rows, numbers=numbers)
    if more:
        print_more(limit)


def endpoints(
    sort: Annotated[
        Order, typer.Option(help="Most requests, most denied, or the highest share denied first.")
    ] = Order.REQUESTS,
    since: _Since = None,
    until: _Until = None,
    limit: Limit = 10,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the endpoints that are asked or refused most, of the last day unless told."""
    with admin(url, token) as client:
        found, _ = client.some(at("endpoints"), limit, sort=sort.value, **_between(since, until))
    if as_json:
        print_json(found)
        return
    rows = [
        (each["endpoint"], f"{each['requests']:,}", f"{each['denied']:,}", _percent(each["share"]), *_times(each))
        for each in found
    ]
    numbers = ("requests", "denied", "share", *_MILLISECONDS)
    print_rows(("endpoint", *numbers), rows, numbers=numbers)


def near_limits(
    user: Annotated[Text, typer.Option(help="Of this user, as the counters are now.")] = None,
    rule: Annotated[Text, typer.Option(help="Only of this rule.")] = None,
    share: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="From which share of a limit on.")
    ] = _NEAR,
    since: _Since = None,
    until: _Until = None,
    limit: Limit = 10,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show who is near a limit, as was recorded in the last hour unless told."""
    with admin(url, token, decides=user is not None) as client:
        query = {"user": user, "rule": rule, "share": share, **_between(since, until)}
        found, _ = client.some(at("near-limits"), limit, **query)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            who(each),
            each["rule"],
            f"{each['count']:,}",
            f"{each['limit']:,}",
            _coloured(each["share"]),
            moment(each["at"]),
        )
        for each in found
    ]
    print_rows(("who", "rule", "used", "limit", "share", "at (UTC)"), rows, numbers=["used", "limit", "share"])


def utilisation(
    since: _Since = None,
    until: _Until = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show how full the limits of each rule were, of the last day unless told."""
    with admin(url, token) as client:
        found, _ = client.some(at("utilisation"), limit, **_between(since, until))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["rule"],
            *(f"{each[name]:,}" for name in ("subjects", "near")),
            *map(_coloured, (each["p50"], each["p95"], each["highest"])),
        )
        for each in found
    ]
    numbers = ("seen", "near", "median", "p95", "highest")
    print_rows(("rule", *numbers), rows, numbers=numbers)
    if found:
        print_note("of each user, key or address that was recorded: the highest share of the limit that it had used")


def who(each: dict[str, Any]) -> str:
    """A user, else a key, else an address."""
    if each["user"] is not None:
        return str(each["user"])
    return f"key {each['api_key']}" if each["api_key"] is not None else str(each["ip"] or "")


def _between(since: str | None, until: str | None) -> dict[str, str | None]:
    return {"since": moment_of(since, "--since", ahead=False), "until": moment_of(until, "--until", ahead=False)}


def _times(each: dict[str, Any]) -> list[str]:
    return ["" if each[name] is None else f"{1_000 * each[name]:.2g}" for name in _QUANTILES]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _coloured(share: float) -> Styled:
    return Styled(_percent(share), "red" if share >= _FULL else "yellow" if share >= _NEAR else "")
