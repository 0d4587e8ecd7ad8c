"""The screen of `headgate top`: from figures to lines that fit a terminal of 80 by 24, and use a larger one."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headgate.cli.tables import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

STATES: Final = {
    "normal": "bold green",
    "degraded": "bold yellow",
    "overloaded": "bold red",
    "failing_open": "bold red",
}
PARTS: Final = {"up": "green", "degraded": "yellow", "down": "bold red", "not_used": "dim"}
RATES: Final = {
    "allowed": "green",
    "denied": "red",
    "throttled": "cyan",
    "blocked": "red",
    "shadow": "magenta",
    "degraded": "yellow",
}
_BARS: Final = "▁▂▃▄▅▆▇█"
_WIDE: Final = 118
_FIXED: Final = 6
"""Lines above the tables: headline, rates, chart, and an empty one. Reasons and health take as many as they need."""
_MAX_ROWS: Final = 20
_USUAL_ROWS: Final = 10
_MIN_ROWS: Final = 3


class Screen(NamedTuple):
    """Where it is drawn."""

    url: str
    width: int
    height: int | None
    """None: as many lines as there is to say."""
    trouble: str | None = None
    """Why there are no newer figures."""


def screen(figures: Mapping[str, Any] | None, look: Screen) -> RenderableType:
    """Everything, for a terminal of that size."""
    if figures is None:
        return Group(_headline(None, look), Text(), _trouble(look))
    lines: list[RenderableType] = [_headline(figures, look)]
    if look.trouble is not None:
        lines.append(_trouble(look))
    reasons = [
        Text(line, "yellow")
        for each in figures["reasons"][:2]
        for line in wrap(
            f"{each['part']}: {printable(each['message'])}", look.width, initial_indent="  ", subsequent_indent="    "
        )
    ]
    health = _lines_of(_health(figures), look.width)
    lines += [*reasons, _rates(figures), _chart(figures["history"], look.width), *health, Text()]
    used = _FIXED + len(reasons) + len(health) + (look.trouble is not None)
    lines.append(_tables(figures, look, used))
    return Group(*lines)


def _headline(figures: Mapping[str, Any] | None, look: Screen) -> RenderableType:
    left = Text.assemble(("headgate top", "bold"), "  ", (look.url, "cyan"))
    right = Text("q quits", "dim") if look.height is not None else Text()
    middle = Text()
    if figures is not None:
        state = figures["state"]
        middle = Text(f" {state.replace('_', ' ')} ", f"{STATES.get(state, 'bold')} reverse")
        at = Text(f"{figures['at'][11:19]} UTC  ", "dim")
        right = Text.assemble(at, right)
    grid = Table.grid(expand=True)
    grid.add_column(justify="left", no_wrap=True)
    grid.add_column(justify="center", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, middle, right)
    return grid


def _trouble(look: Screen) -> Text:
    return Text(f"{printable(look.trouble or '')}; trying again", "bold red")


def _rates(figures: Mapping[str, Any]) -> RenderableType:
    """The figures that are looked at first: one column each."""
    grid = Table.grid(expand=True, padding=(0, 1))
    latency = figures["latency"]
    names = [*RATES, "p50", "p99"]
    for _ in names:
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row(*(Text(name, "dim") for name in names))
    values = [
        Text(_rate(figures["rates"][name]), style if figures["rates"][name] else "dim") for name, style in RATES.items()
    ]
    grid.add_row(*values, *(Text(_millis(latency[name])) for name in ("p50", "p99")))
    return grid


def _chart(history: Sequence[Mapping[str, Any]], width: int) -> RenderableType:
    """Two lines of bars: what passed, and what did not, of the last seconds, the newest on the right."""
    room = max(10, width - 18)
    latest = history[-room:]
    passed = [each["allowed"] + each["throttled"] for each in latest]
    refused = [each["denied"] + each["blocked"] for each in latest]
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    for name, values, style in (("passed", passed, "green"), ("refused", refused, "red")):
        highest = max(values, default=0.0)
        grid.add_row(f"{name} {_rate(highest):>6}", Text(_bars(values, highest), style))
    return grid


def _bars(values: Sequence[float], highest: float) -> str:
    if highest <= 0:
        return " " * len(values)
    return "".join(" " if value <= 0 else _BARS[min(7, int(8 * value / highest))] for value in values)


def _health(figures: Mapping[str, Any]) -> Sequence[Text]:
    """What is up, what waits, and who decides: phrases that stay whole."""
    health, spool = figures["health"], figures["health"]["spool"]
    phrases = []
    for label, part in (("Redis", "redis"), ("PostgreSQL", "postgres"), ("Kafka", "kafka"), ("spool", "spool")):
        state = health[part]["state"]
        phrases.append(Text.assemble((f"{label} ", "dim"), (state.replace("_", " "), PARTS.get(state, ""))))
    if spool["spooled"] or spool["dropped"]:
        phrases.append(Text(f"{spool['spooled']:,} waiting, {spool['dropped']:,} dropped", "yellow"))
    processes = figures["processes"]
    behind = sum(each["behind"] for each in processes)
    rules = "" if figures["snapshot"] is None else f", snapshot {figures['snapshot']['number']}"
    last = Text(f"{len(processes)} process{'' if len(processes) == 1 else 'es'}{rules}", "dim")
    if behind:
        last.append(f", {behind} behind", "yellow")
    return [*phrases, last]


def _lines_of(phrases: Sequence[Text], width: int) -> Sequence[Text]:
    """As few lines as hold all phrases, two blanks apart."""
    lines = [phrases[0]]
    for phrase in phrases[1:]:
        if lines[-1].cell_len + 2 + phrase.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], "  ", phrase)
        else:
            lines.append(phrase)
    return lines


def _tables(figures: Mapping[str, Any], look: Screen, used: int) -> RenderableType:
    """Rules, violators and counters: beside each other where there is room, else below each other."""
    hot = figures.get("hot")
    if look.width >= _WIDE:
        rows = _USUAL_ROWS if look.height is None else max(_MIN_ROWS, min(_MAX_ROWS, look.height - used - 1))
        beside = [_rules(figures["rules"], rows), _violators(figures["violators"], rows)]
        if hot is not None:
            beside.append(_hot(hot, rows))
        grid = Table.grid(expand=True, padding=(0, 2))
        for _ in beside:
            grid.add_column(ratio=1)
        grid.add_row(*beside)
        return grid
    many = 2 if hot is None else 3
    # Each has a line of headings, and an empty line before the next one.
    room = _USUAL_ROWS if look.height is None else max(_MIN_ROWS, (look.height - used - 2 * many + 1) // many)
    below = [_rules(figures["rules"], room), Text(), _violators(figures["violators"], room)]
    if hot is not None:
        below += [Text(), _hot(hot, room)]
    return Group(*below)


def _table(*headings: tuple[str, str]) -> Table:
    """A table whose first column takes the room that the others leave."""
    made = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for number, (heading, side) in enumerate(headings):
        made.add_column(
            heading,
            justify="right" if side == "right" else "left",
            ratio=1 if number == 0 else None,
            no_wrap=True,
            overflow="ellipsis",
        )
    return made


def _rules(rules: Sequence[Mapping[str, Any]], rows: int) -> RenderableType:
    made = _table(("busiest rules", "left"), ("per s", "right"), ("denied", "right"), ("shadow", "right"))
    for each in rules[:rows]:
        denied = each["denied"] + each["blocked"]
        made.add_row(
            Text(printable(each["rule"])),
            _rate(each["rate"]),
            Text(_rate(denied), "red" if denied else "dim"),
            Text(_rate(each["shadow"]), "magenta" if each["shadow"] else "dim"),
        )
    if not rules:
        made.add_row(Text("no requests in the last minute", "dim"), "", "", "")
    return made


def _violators(violators: Sequence[Mapping[str, Any]] | None, rows: int) -> RenderableType:
    made = _table(("denied most", "left"), ("in 15 min", "right"), ("last (UTC)", "right"))
    for each in (violators or [])[:rows]:
        made.add_row(
            Text(printable(_who(each))), Text(f"{each['violations']:,}", "red"), Text(each["last"][11:19], "dim")
        )
    if not violators:
        sentence = "the database did not say yet" if violators is None else "no caller was denied"
        made.add_row(Text(sentence, "dim"), "", "")
    return made


def _who(each: Mapping[str, Any]) -> str:
    return str(each.get("user") or each.get("api_key") or each.get("ip") or "unknown")


def _hot(hot: Sequence[Mapping[str, Any]], rows: int) -> RenderableType:
    made = _table(("hottest counters", "left"), ("per s", "right"))
    for each in hot[:rows]:
        made.add_row(Text(printable(each["key"])), _rate(each["rate"]))
    if not hot:
        made.add_row(Text("none is hot", "dim"), "")
    return made


def _rate(value: float) -> str:
    """Three digits at least, and no more than are true: 0, 0.4, 12.3, 1,234."""
    if not value:
        return "0"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"  # noqa: PLR2004 (three digits)


def _millis(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:.1f} ms"
