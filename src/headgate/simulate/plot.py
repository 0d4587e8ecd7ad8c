"""The report as an SVG plot: requests over time above, denials below, for the draft and the compared rules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WIDTH: Final = 960
_LEFT: Final = 72
_RIGHT: Final = 24
_ACROSS: Final = _WIDTH - _LEFT - _RIGHT
_HEIGHT: Final = 470
_PANELS: Final = ((96, 150), (306, 110))
"""Top and height of each panel."""
_LABELS: Final = 8
_MAX_LEGEND: Final = 44
"""Characters of a legend entry."""
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_BETWEEN_LABELS: Final = (
    *(1, 2, 5, 10, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 28 * _DAY, 91 * _DAY, 364 * _DAY),
)
_NICE: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)

# Without CSS variables, which not every viewer supports.
_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #1c2733; } .dim { font-size: 12px; fill: #5b6875; }
  .title { font-size: 17px; font-weight: 600; } .back { fill: #ffffff; } .grid { stroke: #dfe4ea; }
  .all { fill: #9fb3c8; } .draft { fill: #c43d00; } .mark { fill: #0062b1; }
  .beside { fill: none; stroke: #0062b1; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf0; } .dim { fill: #9aa7b4; } .back { fill: #12181f; } .grid { stroke: #2b3540; }
    .all { fill: #4d6479; } .draft { fill: #ff8b4d; } .mark { fill: #62b5ff; } .beside { stroke: #62b5ff; }
  }
"""


def plot_svg(found: Mapping[str, Any]) -> str:
    """The plot of a report, as `headgate.simulate.report` makes it."""
    steps = found["timeline"]["steps"]
    seconds = found["timeline"]["seconds"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">',
        f"<title>{escape(_headline(found))}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}"/>',
        _text(_LEFT, 32, _headline(found), "title"),
        *_legend(found),
    ]
    if not steps:
        parts.append(_text(_LEFT, _PANELS[0][0] + 40, "no requests", "dim"))
        return "\n".join([*parts, "</svg>\n"])
    has_against = found["against"] is not None
    requests = [step["requests"] for step in steps]
    denied = [step["denied"] for step in steps]
    against = [step["denied_against"] for step in steps] if has_against else []
    for (top, height), name, values, kind, line in (
        (_PANELS[0], "requests", requests, "all", []),
        (_PANELS[1], "denied", denied, "draft", against),
    ):
        most = nice(max([*values, *line, 1]))
        parts.append(_text(_LEFT, top - 10, f"{name} in {span(seconds)}", "dim"))
        parts += _grid(top, height, most)
        parts.append(f'<path class="{kind}" d="{_bars(values, most, top, height)}"/>')
        if line:
            parts.append(f'<path class="beside" d="{_stairs(line, most, top, height)}"/>')
    parts += _times(steps, seconds)
    return "\n".join([*parts, "</svg>\n"])


def is_plot(text: str) -> bool:
    """Whether this was made by `plot_svg`."""
    return text.startswith("<svg ") and _STYLE in text


def nice(amount: int) -> int:
    """The smallest round number that is at least this amount."""
    unit = int(f"1{'0' * (len(str(amount)) - 1)}")
    return next(tenths * unit // 10 for tenths in _NICE if tenths * unit >= 10 * amount and tenths * unit % 10 == 0)


def span(seconds: float) -> str:
    """The length of a step in words."""
    for size, word in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            count = round(seconds / size)
            return f"a {word}".replace("a hour", "an hour") if count == 1 else f"{count} {word}s"
    return "a second" if seconds == 1 else f"{seconds:g} seconds"


def _headline(found: Mapping[str, Any]) -> str:
    draft = found["draft"]
    denied = draft["denied"] + draft["blocked"]
    return f"{denied:,} of {found['requests']:,} requests would have been denied ({100 * draft['share_denied']:.2f} %)"


def _legend(found: Mapping[str, Any]) -> Iterator[str]:
    entries = [("all", "requests"), ("draft", f"denied by {found['draft']['rules']}")]
    if found["against"] is not None:
        entries.append(("mark", f"denied by {found['against']['rules']}"))
    left = _LEFT
    for kind, words in entries:
        short = words if len(words) <= _MAX_LEGEND else f"{words[: _MAX_LEGEND - 1]}…"
        yield f'<rect class="{kind}" x="{left}" y="48" width="12" height="12" rx="2"/>'
        yield _text(left + 18, 59, short)
        left += 18 + 7 * len(short) + 26


def _grid(top: int, height: int, most: int) -> Iterator[str]:
    for halves in (0, 1, 2):
        y = top + height * (1 - halves / 2)
        yield f'<path class="grid" d="M{_LEFT} {y:g}H{_LEFT + _ACROSS}"/>'
        if most * halves % 2 == 0:
            yield _text(_LEFT - 8, y + 4, f"{most * halves // 2:,}", "dim", "end")


def _bars(values: Sequence[int], most: int, top: int, height: int) -> str:
    """All bars as one path."""
    wide = _ACROSS / len(values)
    gap = min(1.0, wide / 5)
    return "".join(
        f"M{_LEFT + index * wide:.1f} {top + height}h{wide - gap:.2f}v{-height * value / most:.1f}h{gap - wide:.2f}z"
        for index, value in enumerate(values)
        if value
    )


def _stairs(values: Sequence[int], most: int, top: int, height: int) -> str:
    wide = _ACROSS / len(values)
    steps = "".join(
        f"V{top + height * (1 - value / most):.1f}H{_LEFT + (index + 1) * wide:.1f}"
        for index, value in enumerate(values)
    )
    return f"M{_LEFT} {top + height}{steps}V{top + height}"


def _times(steps: Sequence[Mapping[str, Any]], seconds: float) -> Iterator[str]:
    """The time labels below, in UTC."""
    top, height = _PANELS[-1]
    first, last = (datetime.fromisoformat(steps[index]["at"]) for index in (0, -1))
    start, whole = int(first.timestamp()), int(seconds * len(steps))
    every = next((each for each in _BETWEEN_LABELS if each * _LABELS >= whole), _BETWEEN_LABELS[-1])
    form = "%H:%M:%S" if every < _MINUTE else "%H:%M" if every < _DAY else "%b %d"
    for moment in range(-(-start // every) * every, start + whole, every):
        x = _LEFT + _ACROSS * (moment - start) / whole
        yield f'<path class="grid" d="M{x:.1f} {top + height}v5"/>'
        yield _text(x, top + height + 20, datetime.fromtimestamp(moment, UTC).strftime(form), "dim", "middle")
    days = f"{first:%Y-%m-%d}" if first.date() == last.date() else f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
    yield _text(_WIDTH - _RIGHT, top + height + 42, f"{days}, times in UTC", "dim", "end")


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    named = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{named}>{escape(words)}</text>'
