"""Very many rows at once: in batches, checked like single ones, all or none."""

from __future__ import annotations

from collections.abc import AsyncIterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.controlplane.fields import refuse
from headgate.errors import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

BATCH: Final = 10_000
_MAX_PROBLEMS: Final = 100


async def batches(rows: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[list[object]]:
    """Rows, `BATCH` at a time."""
    if not isinstance(rows, AsyncIterable):
        left = iter(rows)
        while batch := list(islice(left, BATCH)):
            yield batch
        return
    batch = []
    async for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


class Complaints:
    """What is wrong with very many rows: the first problems, and how many more there are."""

    def __init__(self) -> None:
        """Start with none."""
        self.count = 0
        self._first: list[Problem] = []

    def add(self, problems: list[Problem]) -> None:
        """Note some more."""
        self.count += len(problems)
        self._first += problems[: _MAX_PROBLEMS - len(self._first)]

    def refuse(self) -> None:
        """Raise them, if there are any."""
        more = self.count - len(self._first)
        refuse([*self._first, Problem((), f"and {more} more problems")] if more else self._first)
