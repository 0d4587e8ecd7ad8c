"""Usage for billing systems, a line for each day, user and rule: CSV, or CloudEvents as JSON lines."""

from __future__ import annotations

import csv
import io
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_COLUMNS: Final = ("day", "user", "rule", "requests", "denied", "cost")


class Format(StrEnum):
    """How usage is written."""

    CSV = "csv"
    CLOUDEVENTS = "cloudevents"

    @property
    def media_type(self) -> str:
        """As HTTP names it."""
        return "text/csv; charset=utf-8" if self is Format.CSV else "application/x-ndjson"

    @property
    def heading(self) -> str:
        """What comes before all lines."""
        return ",".join(_COLUMNS) + "\r\n" if self is Format.CSV else ""

    def lines(self, rows: Iterable[Mapping[str, Any]]) -> str:
        """Some rows, as `Activity.usage` has them or as the API answers them."""
        if self is Format.CSV:
            text = io.StringIO()
            csv.writer(text).writerows([row[name] for name in _COLUMNS] for row in rows)
            return text.getvalue()
        return "".join(json.dumps(_event(row), ensure_ascii=False) + "\n" for row in rows)


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    """A CloudEvent; its id is the same for the same day, user and rule, so that the receiver recognises repeats."""
    day = str(row["day"])
    return {
        "specversion": "1.0",
        "type": "headgate.usage.day",
        "source": "headgate",
        "id": json.dumps([day, row["user"], row["rule"]], ensure_ascii=False, separators=(",", ":")),
        "time": f"{day}T00:00:00Z",
        "subject": row["user"],
        "datacontenttype": "application/json",
        "data": {name: day if name == "day" else row[name] for name in _COLUMNS},
    }
