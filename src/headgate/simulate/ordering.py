"""Sorting what is nearly sorted, in bounded memory."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.simulate.traffic import Call

WINDOW: Final = 20_000
"""A call may stand so many places behind where it belongs. What is further behind comes late."""
_PAGE: Final = 10_000


def in_order(pages: Iterable[list[Call]], window: int = WINDOW) -> Iterator[list[Call]]:
    """The same calls sorted by time, except for those that are too far from their place."""
    held: list[Call] = []
    for page in pages:
        held += page
        if len(held) >= 2 * window:
            _sort(held)
            yield held[:window]
            del held[:window]
        else:
            yield []  # so that whoever waits can say how far it is
    _sort(held)
    for start in range(0, len(held), _PAGE):
        yield held[start : start + _PAGE]


def _sort(calls: list[Call]) -> None:
    # By time alone where that is all there is: a third of the time.
    calls.sort(key=itemgetter(0) if all(call[2] is None for call in calls) else attrgetter("order"))
