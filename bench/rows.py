"""What a benchmark leaves behind: rows that compare two numbers, and the figures behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.measure import Timing


class Better(StrEnum):
    """Which way a ratio should go."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `ratio` is `ours / reference`; `bar` is what it should reach, None where nothing is asked."""

    name: str
    ours: float
    reference: float
    unit: str
    against: str
    """What the reference is."""
    better: Better = Better.HIGHER
    median_ratio: float | None = None
    """The same ratio between the median rounds, where `ours` and `reference` are the best ones."""
    bar: float | None = None
    """See `bench.bars`, which has the bars of all rows."""
    note: str = ""
    part: str = ""
    """The part of the benchmark that measured it, and measures it anew."""
    date: str = ""

    @property
    def ratio(self) -> float:
        """Ours against the reference."""
        return self.ours / self.reference

    @property
    def met(self) -> bool | None:
        """Whether the bar was reached; None if there is none."""
        if self.bar is None:
            return None
        return self.ratio >= self.bar if self.better is Better.HIGHER else self.ratio <= self.bar

    def as_dict(self) -> dict[str, Any]:
        """The row as it stands in results.json."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Row:
        """A row out of results.json; what can be worked out is worked out anew."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in data.items() if name in known}
        return cls(**{**given, "better": Better(given.get("better", Better.HIGHER))})


def pace(name: str, ours: Timing, reference: Timing, against: str) -> Row:
    """How many a second, ours against another's: the higher the better."""
    ratio = reference.median / ours.median
    return Row(name, 1 / ours.best, 1 / reference.best, "checks/s", against, median_ratio=ratio)


def growth(name: str, ours: Timing, reference: Timing, against: str) -> Row:
    """What one costs, in the heavy case against the light one: the lower the better."""
    ratio = ours.median / reference.median
    return Row(name, ours.best * 1e6, reference.best * 1e6, "µs/check", against, Better.LOWER, ratio)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one part of the benchmark found."""

    part: str
    rows: list[Row] = field(default_factory=list)
    figures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """All that was measured, by table; the plots are drawn from it."""
    skipped: list[str] = field(default_factory=list)
    """A sentence for each row that cannot be measured here."""


def merged(kept: list[Row], outcome: Outcome, date: str) -> list[Row]:
    """The rows of parts that were not run, and this part's rows in place of its old ones."""
    new = [replace(row, part=outcome.part, date=date) for row in outcome.rows]
    names = {row.name for row in new}  # a row may have moved here from another part
    return [row for row in kept if row.part != outcome.part and row.name not in names] + new
