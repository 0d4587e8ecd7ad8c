"""What a migration has made of one file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.adapters.yaml_text import write_rule_set
from headgate.errors import InvalidLimit, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ITEM: Final = re.compile(
    r"\s*(?P<amount>[0-9]{1,12})\s*(?:/|\s*per\s*)\s*(?P<count>[0-9]{1,9})?\s*"
    r"(?P<unit>second|minute|hour|day|month|year)s?\s*",
    re.IGNORECASE,
)
_SEPARATORS: Final = re.compile(r"[,;|]")
_DAYS: Final = {"month": 30, "year": 360}
"""As long as they are in `limits`."""
STRATEGIES: Final = {
    "fixed-window": "fixed_window",
    "moving-window": "sliding_window_log",
    "sliding-window-counter": "sliding_window_counter",
}


class Note(NamedTuple):
    """Something that differs, or that has to be done by hand."""

    line: int
    """Of the source; 0 where it concerns the whole."""
    message: str

    def __str__(self) -> str:
        """In one line."""
        return f"line {self.line}: {self.message}" if self.line else self.message


class Moved(NamedTuple):
    """The equivalent of one file."""

    source: str
    """What the file was: ``slowapi``, ``flask-limiter``, ``nginx``, ``kong`` or ``envoy``."""
    text: str
    """Python source, or rules in YAML."""
    notes: tuple[Note, ...]

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"source": self.source, "text": self.text, "notes": [note._asdict() for note in self.notes]}


def headgate_limits(text: str) -> str:
    """Limits as `limits` writes them (``"10 per 5 minutes; 100/day"``), in headgate's words."""
    return ";".join(_limit(part) for part in _SEPARATORS.split(text))


def _limit(text: str) -> str:
    found = _ITEM.fullmatch(text)
    if found is None:
        msg = f"{short_repr(text)} is not a limit as the library limits writes it"
        raise InvalidLimit(msg)
    count, unit = int(found["count"] or 1), found["unit"].lower()
    if unit in _DAYS:
        count, unit = count * _DAYS[unit], "day"
    period = unit if count == 1 else f"{count} {unit}s"
    return f"{found['amount']}/{period}"


def rules_text(rules: Mapping[str, Any]) -> str:
    """Rules as a file; what is an enumeration in Python is a word there."""
    return write_rule_set(json.loads(json.dumps(rules)))


def notes_in_order(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Each note once, those for the whole last."""
    return tuple(sorted(dict.fromkeys(notes), key=lambda note: (note.line == 0, note.line)))
