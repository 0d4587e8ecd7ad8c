"""The lease protocol in every order: three processes, one fixed window, all interleavings of what can happen.

The books are the real ones; the store is a number for each window. A grant is two events, the store's decision and
the arrival of its answer, so that everything else can happen between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from headgate.core import lease
from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.failure_policy import FailurePolicy
from headgate.core.lease import LeaseBlock
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.spread import Spread, SpreadMode
from headgate.dataplane.lease_book import LeaseBook

if TYPE_CHECKING:
    from headgate.core.denial import Nanos

PERIOD: Final = 10
LIMIT: Final = 4
GRANT: Final = 2
KEY: Final = "rl:{g=api}:api:fw10us"
METER: Final = Meter(Rate(LIMIT, PERIOD), Algorithm.FIXED_WINDOW)
POLICY: Final = FailurePolicy(spread=Spread(SpreadMode.LEASED))
HOLDERS: Final = 3
EVENTS: Final = [
    *[(what, holder) for what in ("ask", "arrive", "spend", "return", "crash", "reset") for holder in range(HOLDERS)],
    ("wait", 0),
]


class Grant(NamedTuple):
    """An answer that is on its way."""

    decision: Decision
    sent: Nanos


class Model:
    """The whole system; `do` returns whether an event could happen."""

    def __init__(self) -> None:
        self.now = 0
        self.counts = [0, 0]
        """Of each window, in the store."""
        self.admitted = [0, 0]
        self.books = [self._book() for _ in range(HOLDERS)]
        self.on_the_way: list[Grant | None] = [None] * HOLDERS
        self.lost = 0
        self.was_reset = False

    def _book(self) -> LeaseBook:
        return LeaseBook(lambda: self.now * 1_000)

    @property
    def window(self) -> int:
        return self.now // PERIOD

    def do(self, what: str, holder: int) -> bool:
        return bool(getattr(self, f"_{what}")(holder))

    def _ask(self, holder: int) -> bool:
        if self.on_the_way[holder] is not None or self.counts[self.window] + GRANT > LIMIT:
            return False
        self.counts[self.window] += GRANT
        left = PERIOD - self.now % PERIOD
        remaining = LIMIT - self.counts[self.window]
        start = self.now - self.now % PERIOD
        decision = Decision(
            allowed=True, remaining=remaining, reset_after=left, retry_after=0, delay=0, stamp=start, at=self.now
        )
        self.on_the_way[holder] = Grant(decision, self.now * 1_000)
        self.books[holder]._in_flight[KEY] = True
        return True

    def _arrive(self, holder: int) -> bool:
        grant, self.on_the_way[holder] = self.on_the_way[holder], None
        if grant is None:
            return False
        block = LeaseBlock(Hit(KEY, METER, GRANT), POLICY, grant.decision, grant.sent, self.now * 1_000)
        self.books[holder].granted(block)
        return True

    def _spend(self, holder: int) -> bool:
        made = self.books[holder].take([Hit(KEY, METER, 1, failure_policy=POLICY)])
        if made is not None:
            self.admitted[self.window] += 1
        return made is not None

    def _return(self, holder: int) -> bool:
        book = self.books[holder]
        receipts = [*book.due(), *book.withdraw([KEY])]
        for receipt in receipts:
            assert isinstance(receipt.stamp, int)
            if receipt.stamp // PERIOD == self.window:
                self.counts[self.window] -= receipt.amount
        return bool(receipts)

    def _crash(self, holder: int) -> bool:
        if not self.books[holder].named and self.on_the_way[holder] is None:
            return False
        self.books[holder], self.on_the_way[holder] = self._book(), None
        return True

    def _reset(self, holder: int) -> bool:
        """One process resets the counter, once; what others hold stays, which is the stated bound."""
        if self.was_reset or any(self.held(other) for other in range(HOLDERS) if other != holder):
            return False
        self.was_reset = True
        self.books[holder].drop([KEY])
        self.counts[self.window] = self.admitted[self.window] = 0
        return True

    def _wait(self, _holder: int) -> bool:
        """Half a window passes; each event takes no time by itself."""
        if self.now >= 2 * PERIOD - PERIOD // 2:
            return False
        self.now += PERIOD // 2
        return True

    def held(self, holder: int) -> int:
        """What a process may still spend in this window, or is about to be granted."""
        grant = self.on_the_way[holder]
        is_coming = grant is not None and self.books[holder]._in_flight.get(KEY)
        return self.books[holder].outstanding + (GRANT if is_coming else 0)

    def key(self) -> tuple[object, ...]:
        """All that the future depends on."""
        books = tuple(
            (
                tuple((block.left, block.ends) for block in _blocks(book)),
                book._in_flight.get(KEY),
                self.on_the_way[holder],
            )
            for holder, book in enumerate(self.books)
        )
        return (self.now, tuple(self.counts), tuple(self.admitted), books, self.was_reset)

    def check(self) -> None:
        """Never over the limit, in any window; the store has counted whatever was admitted or may still be."""
        assert max(self.admitted) <= LIMIT, self.key()
        assert max(self.counts) <= LIMIT, self.key()
        live = sum(block.left for book in self.books for block in _blocks(book) if block.ends > self.now * 1_000)
        assert self.counts[self.window] >= self.admitted[self.window] + live, self.key()


def _blocks(book: LeaseBook) -> list[LeaseBlock]:
    block = book.named.get(KEY)
    found = []
    while block is not None:
        found.append(block)
        block = block.next
    return found


def _explored(depth: int) -> int:
    """Every state that so many events can lead to is checked; returns how many there are."""
    seen: set[tuple[object, ...]] = {Model().key()}
    frontier: list[tuple[tuple[str, int], ...]] = [()]
    for _ in range(depth):
        following: list[tuple[tuple[str, int], ...]] = []
        for path in frontier:
            for event in EVENTS:
                model = Model()
                for earlier in path:
                    model.do(*earlier)
                if not model.do(*event):
                    continue
                model.check()
                key = model.key()
                if key not in seen:
                    seen.add(key)
                    following.append((*path, event))
        frontier = following
    return len(seen)


def test_every_order_of_events_keeps_the_limit() -> None:
    """Three holders: grants, arrivals, spending, returns, expiry, crashes, resets, in every order of seven events."""
    assert _explored(7) > 3_000


def test_the_model_finds_blocks_that_outlive_their_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a block could be spent in the next window, or what was spent were returned too, some order would show it."""
    with monkeypatch.context() as broken:
        broken.setattr(lease, "life", lambda *_: 2 * PERIOD)
        with pytest.raises(AssertionError):
            _explored(7)
    with monkeypatch.context() as broken:
        broken.setattr(LeaseBlock, "unspent", lambda block: Receipt(KEY, METER, block.stamp, block.size, ""))
        with pytest.raises(AssertionError):
            _explored(7)
