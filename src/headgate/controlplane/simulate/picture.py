"""A report drawn as SVG: requests over time above, denials below, the draft beside what it is compared with."""

from __future__ import annotations

from datetime import datetime
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
"""Where each begins, and how high it is."""
_LABELS: Final = 6
_LONGEST: Final = 44
"""Characters of an entry of the legend."""
_MINUTE: Final = 60
_DAY: Final = 86_400
_NICE: Final = (1, 2, 5, 10)

_STYLE: Final = """
  svg { font: 13px system-ui, sans-serif; background: var(--back); --back: #ffffff; --ink: #1c2733; --dim: #5b6875;
        --grid: #dfe4ea; --all: #9fb3c8; --draft: #c43d00; --beside: #0062b1; }
  @media (prefers-color-scheme: dark) {
    svg { --back: #12181f; --ink: #e6ebf0; --dim: #9aa7b4;
          --grid: #2b3540; --all: #4d6479; --draft: #ff8b4d; --beside: #62b5ff; }
  }
  .back { fill: var(--back); } text { fill: var(--ink); } .dim { fill: var(--dim); font-size: 12px; }
  .title { font-size: 17px; font-weight: 600; } .grid { stroke: var(--grid); }
  .all { fill: var(--all); } .draft { fill: var(--draft); } .mark { fill: var(--beside); }
  .beside { fill: none; stroke: var(--beside); stroke-width: 2; }
"""


def picture(found: Mapping[str, Any]) -> str:
    """The picture of a report, as `headgate.controlplane.simulate.report` makes it."""
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
        parts.append(_text(_LEFT, _PANELS[0][0] + 40, "there were no requests", "dim"))
        return "\n".join([*parts, "</svg>\n"])
    has_beside = found["against"] is not None
    requests = [step["requests"] for step in steps]
    denied = [step["denied"] for step in steps]
    beside = [step["denied_against"] for step in steps] if has_beside else []
    for (top, height), name, values, kind, line in (
        (_PANELS[0], "requests", requests, "all", []),
        (_PANELS[1], "denied", denied, "draft", beside),
    ):
        most = nice(max([*values, *line, 1]))
        parts.append(_text(_LEFT, top - 10, f"{name} in {span(seconds)}", "dim"))
        parts += _grid(top, height, most)
        parts.append(f'<path class="{kind}" d="{_bars(values, most, top, height)}"/>')
        if line:
            parts.append(f'<path class="beside" d="{_stairs(line, most, top, height)}"/>')
    parts += _times(steps, seconds)
    return "\n".join([*parts, "</svg>\n"])


def nice(amount: int) -> int:
    """The smallest number that is not below it and begins with 1, 2 or 5."""
    unit = int(f"1{'0' * (len(str(amount)) - 1)}")
    return next(first * unit for first in _NICE if first * unit >= amount)


def span(seconds: float) -> str:
    """How long a step is, in words."""
    for size, word in ((_DAY, "day"), (3_600, "hour"), (_MINUTE, "minute")):
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
        short = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
        yield f'<rect class="{kind}" x="{left}" y="48" width="12" height="12" rx="2"/>'
        yield _text(left + 18, 59, short)
        left += 18 + 7 * len(short) + 26


def _grid(top: int, height: int, most: int) -> Iterator[str]:
    for share in (0, 0.5, 1):
        y = top + height * (1 - share)
        yield f'<path class="grid" d="M{_LEFT} {y:g}H{_LEFT + _ACROSS}"/>'
        if (most * share).is_integer() if isinstance(share, float) else True:
            yield _text(_LEFT - 8, y + 4, f"{round(most * share):,}", "dim", "end")


def _bars(values: Sequence[int], most: int, top: int, height: int) -> str:
    """All bars as one path."""
    wide = _ACROSS / len(values)
    gap = min(1.0, wide / 5)
    return "".join(
        f"M{_LEFT + place * wide:.1f} {top + height}h{wide - gap:.2f}v{-height * value / most:.1f}h{gap - wide:.2f}z"
        for place, value in enumerate(values)
        if value
    )


def _stairs(values: Sequence[int], most: int, top: int, height: int) -> str:
    wide = _ACROSS / len(values)
    steps = "".join(
        f"V{top + height * (1 - value / most):.1f}H{_LEFT + (place + 1) * wide:.1f}"
        for place, value in enumerate(values)
    )
    return f"M{_LEFT} {top + height}{steps}V{top + height}"


def _times(steps: Sequence[Mapping[str, Any]], seconds: float) -> Iterator[str]:
    """The times below, in UTC."""
    top, height = _PANELS[-1]
    wide = _ACROSS / len(steps)
    is_long = seconds * len(steps) > 2 * _DAY
    every = max(1, -(-len(steps) // _LABELS))
    for place in range(0, len(steps), every):
        moment = datetime.fromisoformat(steps[place]["at"])
        form = (
            "%b %d" if seconds >= _DAY else "%b %d %H:%M" if is_long else "%H:%M" if seconds >= _MINUTE else "%H:%M:%S"
        )
        yield _text(_LEFT + place * wide, top + height + 20, moment.strftime(form), "dim")
    first, last = (datetime.fromisoformat(steps[place]["at"]) for place in (0, -1))
    days = f"{first:%Y-%m-%d}" if first.date() == last.date() else f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
    yield _text(_WIDTH - _RIGHT, top + height + 42, f"{days}, times in UTC", "dim", "end")


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    named = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{named}>{escape(words)}</text>'
