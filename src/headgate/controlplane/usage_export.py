"""Usage for billing systems, a line for each day, user and rule, or each API key: CSV, or CloudEvents as JSON lines."""

from __future__ import annotations

import csv
import io
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_COLUMNS: Final = {
    "users": ("day", "user", "rule", "requests", "denied", "cost"),
    "keys": ("day", "api_key", "requests", "denied"),
}


class Subject(StrEnum):
    """Whose usage it is."""

    USERS = "users"
    KEYS = "keys"

    @property
    def columns(self) -> tuple[str, ...]:
        """What a line has."""
        return _COLUMNS[self]

    @property
    def position(self) -> tuple[str, ...]:
        """What tells a line from all others, also after a rule has got another name."""
        return ("day", "user", "rule_id") if self is Subject.USERS else ("day", "api_key")


class Format(StrEnum):
    """How usage is written."""

    CSV = "csv"
    CLOUDEVENTS = "cloudevents"

    @property
    def media_type(self) -> str:
        """As HTTP names it."""
        return "text/csv; charset=utf-8" if self is Format.CSV else "application/x-ndjson"

    def heading(self, of: Subject) -> str:
        """What comes before all lines."""
        return ",".join(of.columns) + "\r\n" if self is Format.CSV else ""

    def lines(self, rows: Iterable[Mapping[str, Any]], of: Subject) -> str:
        """Some rows, as `Activity` has them or as the API answers them."""
        if self is Format.CSV:
            text = io.StringIO()
            csv.writer(text).writerows([row[name] for name in of.columns] for row in rows)
            return text.getvalue()
        return "".join(json.dumps(_event(row, of), ensure_ascii=False) + "\n" for row in rows)


def _event(row: Mapping[str, Any], of: Subject) -> dict[str, Any]:
    """A CloudEvent; its id is the same for the same day and subject, so that the receiver recognises repeats."""
    day = str(row["day"])
    parts = [str(row[name]) for name in of.position]
    return {
        "specversion": "1.0",
        "type": "headgate.usage.day" if of is Subject.USERS else "headgate.usage.key_day",
        "source": "headgate",
        "id": json.dumps(parts, ensure_ascii=False, separators=(",", ":")),
        "time": f"{day}T00:00:00Z",
        "subject": parts[1],
        "datacontenttype": "application/json",
        "data": {name: day if name == "day" else row[name] for name in of.columns},
    }
