"""What the `limits` library asks of a storage, answered by headgate's algorithms and stores.

    limits' strategy        asks for                              headgate's algorithm
    fixed window            incr, get, get_expiry                 fixed_window
    moving window           acquire_entry, get_moving_window      sliding_window_log
    sliding window counter  acquire_sliding_window_entry, …       sliding_window_counter

Each is one decision of a store, or two looks. Two of the calls do not name the limit that they are about; their
counters are measured against a limit that no caller reaches.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core import degraded
from headgate.core.decision import Source
from headgate.core.limit import Rate
from headgate.core.meter import MAX_LOG, Algorithm
from headgate.core.units import MAX_AMOUNT, SECOND
from headgate.errors import InvalidLimit, InvalidRequest, Overloaded, StoreError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.decision import Decision, Hit
    from headgate.core.units import Micros
    from headgate.dataplane.bare_keys import BareKeys
    from headgate.ports import CounterStore

_MAX_REMEMBERED: Final = 100_000
_ITEM: Final = re.compile(r".*/[0-9]+/(?P<multiples>[0-9]{1,9})/(?P<unit>[^/]+)", re.DOTALL)
_ON_CLEAR: Final = (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_LOG)
_SOUND: Final = (Source.STORE, Source.DENY_CACHE)
_PING: Final = "limits: ping"


class _Counter(NamedTuple):
    key: str
    period: Micros
    algorithm: Algorithm


class LimitsCounters:
    """The counters behind a storage. Its coroutines wait only where the store does."""

    def __init__(
        self,
        store: CounterStore,
        bare_keys: BareKeys,
        clock: Callable[[], Micros],
        *,
        unit_seconds: Callable[[str], int | None],
        prefix: str = "",
        degrades: bool = False,
    ) -> None:
        """`degrades` says that answers without the store are fine; else they are raised as `StoreError`.

        `clock` is this process's, for answers that the store's clock is not there for. `unit_seconds` says how
        long a unit of `limits` is, those of a program's own included.
        """
        self._unit_seconds = unit_seconds
        self._clock = clock
        self._store = store
        self._bare_keys = bare_keys
        self._prefix = f"{prefix}:" if prefix else ""
        self._degrades = degrades
        self._used: dict[_Counter, None] = {}
        """What this process has counted in, as far as it remembers."""
        self._periods: dict[str, Micros] = {}
        """The window of each key, because not every question says it."""

    # Fixed window

    async def incr(self, key: str, seconds: float, amount: int) -> int:
        """Count, whatever the limit; returns the count."""
        counter = self._counter(key, seconds, Algorithm.FIXED_WINDOW)
        decision = await self._take(counter, MAX_AMOUNT, amount)
        return MAX_AMOUNT - decision.remaining + (0 if decision.allowed else amount)

    async def get(self, key: str) -> int:
        """The count in the present window."""
        found = await self._look_at_window(key)
        return 0 if found is None else MAX_AMOUNT - found.remaining

    async def get_expiry(self, key: str) -> float:
        """When the present window ends, in Unix seconds; now, if nothing was counted in it."""
        found = await self._look_at_window(key)
        if found is None:
            found = await self._look(_Counter(_PING, SECOND, Algorithm.FIXED_WINDOW), MAX_AMOUNT)
        return (found.at + found.reset_after) / SECOND

    async def _look_at_window(self, key: str) -> Decision | None:
        period = self._period(key)
        if period is None:
            return None
        return await self._look(_Counter(key, period, Algorithm.FIXED_WINDOW), MAX_AMOUNT)

    # Moving window

    async def acquire_entry(self, key: str, limit: int, seconds: float, amount: int) -> bool:
        """Take, if every interval of the window's length stays within the limit."""
        _check_moving_window(limit)
        counter = self._counter(key, seconds, Algorithm.SLIDING_WINDOW_LOG)
        return (await self._take(counter, limit, amount)).allowed

    async def get_moving_window(self, key: str, limit: int, seconds: float) -> tuple[float, int]:
        """The instant of the oldest entry in view, in Unix seconds, and how many there are."""
        _check_moving_window(limit)
        counter = self._counter(key, seconds, Algorithm.SLIDING_WINDOW_LOG)
        found = await self._look(counter, limit)
        if found.remaining < limit:
            # The wait for one more than is left ends when the oldest entry leaves the view.
            full = await self._look(counter, limit, found.remaining + 1)
            if not full.allowed and full.retry_after is not None:
                return (full.at + full.retry_after - counter.period) / SECOND, limit - found.remaining
        return found.at / SECOND, limit - found.remaining

    # Sliding window counter

    async def acquire_sliding_window_entry(self, key: str, limit: int, seconds: float, amount: int) -> bool:
        """Take, if the estimate stays within the limit."""
        counter = self._counter(key, seconds, Algorithm.SLIDING_WINDOW_COUNTER)
        return (await self._take(counter, limit, amount)).allowed

    async def get_sliding_window(self, key: str, seconds: float) -> tuple[int, float, int, float]:
        """What is used, as the count of the present window, and when it becomes one less.

        limits adds a share of the window before to the present one. The share is already in our
        figure, so the window before is always empty, and its arithmetic gives our own decision.
        """
        counter = self._counter(key, seconds, Algorithm.SLIDING_WINDOW_COUNTER)
        found = await self._look(counter, MAX_AMOUNT)
        used = MAX_AMOUNT - found.remaining
        if not used:
            return 0, 0.0, 0, 0.0
        fewer = await self._look(counter, MAX_AMOUNT, found.remaining + 1)
        wait = fewer.retry_after or 0
        return 0, 0.0, used, min(wait, counter.period - 1) / SECOND  # limits takes it modulo the window

    # All of them

    async def clear(self, key: str) -> None:
        """Forget what fixed and moving windows have counted for a key."""
        period = self._period(key)
        if period is not None:
            await self._forget([_Counter(key, period, algorithm) for algorithm in _ON_CLEAR])

    async def clear_sliding_window(self, key: str, seconds: float) -> None:
        """Forget what a sliding window counter has counted for a key."""
        await self._forget([self._counter(key, seconds, Algorithm.SLIDING_WINDOW_COUNTER)])

    async def reset(self) -> int:
        """Forget what this process has counted; returns how many counters that were.

        Looking for the counters of others would make the server go through all its keys.
        """
        used = list(self._used)
        await self._forget(used)
        return len(used)

    async def check(self) -> bool:
        """Whether the store answers."""
        try:
            (found,) = await self._store.peek([self._hit(_Counter(_PING, SECOND, Algorithm.FIXED_WINDOW), 1, 0)])
        except Overloaded:
            return True  # it does, only not at once
        except StoreError:
            return False
        return found.source is Source.STORE

    async def _take(self, counter: _Counter, limit: int, amount: int) -> Decision:
        if len(self._used) >= _MAX_REMEMBERED:
            self._used.clear()
        self._used[counter] = None
        hit = self._hit(counter, limit, amount)
        try:
            (decision,) = await self._store.take([hit])
        except Overloaded:
            return self._shed(hit)
        return self._sound(decision)

    async def _look(self, counter: _Counter, limit: int, amount: int = 0) -> Decision:
        hit = self._hit(counter, limit, amount)
        try:
            (decision,) = await self._store.peek([hit])
        except Overloaded:
            return self._shed(hit)
        return self._sound(decision)

    def _shed(self, hit: Hit) -> Decision:
        """What `on_overload=deny` asks for is a refusal: `limits` has no other word for it, and an error is a 500."""
        return degraded.denied(hit, self._clock())

    def _sound(self, decision: Decision) -> Decision:
        if decision.source not in _SOUND and not self._degrades:
            msg = "the counter store is unavailable"
            raise StoreError(msg, transient=True)
        return decision

    async def _forget(self, counters: list[_Counter]) -> None:
        for counter in counters:
            self._used.pop(counter, None)
        await self._store.reset([self._hit(counter, 1, 0).key for counter in counters])

    def _hit(self, counter: _Counter, limit: int, amount: int) -> Hit:
        if isinstance(amount, float):  # limits' own storages add up whatever they are given
            msg = f"a cost is a whole number, not {short_repr(amount)}; to count in parts, multiply limits and costs"
            raise InvalidRequest(msg)
        rate = Rate(limit, counter.period)
        hit = self._bare_keys.hit(self._prefix + counter.key, rate, amount, counter.algorithm)
        assert hit is not None  # noqa: S101 (a rate is never unlimited)
        return hit

    def _counter(self, key: str, seconds: float, algorithm: Algorithm) -> _Counter:
        period = round(seconds * SECOND)
        if self._periods.get(key) != period:
            if len(self._periods) >= _MAX_REMEMBERED:
                self._periods.clear()
            self._periods[key] = period
        return _Counter(key, period, algorithm)

    def _period(self, key: str) -> Micros | None:
        """The window of a key: as it was counted in last, or as limits writes it after its keys."""
        known = self._periods.get(key)
        if known is not None:
            return known
        item = _ITEM.fullmatch(key)
        seconds = None if item is None else self._unit_seconds(item["unit"])
        return None if item is None or seconds is None else int(item["multiples"]) * seconds * SECOND


def _check_moving_window(limit: int) -> None:
    """The library shows a storage no limit before its first hit, so this is the earliest moment to say it."""
    if limit > MAX_LOG:
        msg = (
            f"{limit} is too large for the strategy moving-window, which keeps every hit (at most {MAX_LOG}); "
            "use sliding-window-counter"
        )
        raise InvalidLimit(msg)
