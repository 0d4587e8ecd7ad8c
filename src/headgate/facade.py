"""`headgate.Limiter`: the limiter with a way to open it, and to wait for what it would refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headgate import wiring
from headgate.adapters.clock import wall_clock
from headgate.core.meter import DEFAULT_ALGORITHM
from headgate.dataplane import limiter
from headgate.dataplane.acquiring import Acquirer, Acquiring, Terms, iterate
from headgate.dataplane.deny_cache import DEFAULT_MEGABYTES
from headgate.dataplane.reservations import Slot
from headgate.dataplane.wait_queues import MAX_WAITERS, RetryingStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping

    from headgate.core.limit import Limit
    from headgate.core.request import Request
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict
    from headgate.dataplane.bare_keys import BareKeys
    from headgate.dataplane.observer import DecisionObserver
    from headgate.dataplane.snapshots import Follower, Planner, Snapshots
    from headgate.dataplane.wait_queues import WaitQueues
    from headgate.ports import CounterStore
    from headgate.wiring import Rules

T = TypeVar("T")


class Limiter(limiter.Limiter):
    """Decides requests by rules (`check`) and bare keys by limits (`hit`), or waits for either (`acquire`)."""

    def __init__(
        self,
        store: CounterStore,
        snapshots: Snapshots,
        bare_keys: BareKeys,
        follower: Follower | None = None,
        *,
        observer: DecisionObserver | None = None,
        planner: Planner | None = None,
        queues: WaitQueues | None = None,
    ) -> None:
        """Constructed by `open`. `queues` are for those who wait; without it, for tasks and on the real clock."""
        super().__init__(store, snapshots, bare_keys, follower, observer=observer, planner=planner)
        queues = wiring.wait_queues(wall_clock) if queues is None else queues
        self._returns = RetryingStore(store, queues)
        self.acquirer = Acquirer(self, self._plan_for, self._returns, queues)

    @classmethod
    def open(
        cls,
        url: str = "memory://",
        rules: Rules = None,
        *,
        clock: Callable[[], Micros] = wall_clock,
        deny_cache_mb: int = DEFAULT_MEGABYTES,
        max_waiters: int = MAX_WAITERS,
        region: str | None = None,
        regions: Mapping[str, str] | None = None,
        gossip_seconds: float = 1.0,
    ) -> Limiter:
        """A limiter on the store at `url`; use it in ``async with``.

        `rules` is a file (watched for changes), a mapping or list of the same shape, or a
        `RuleSet`. `clock` gives microseconds since the epoch, for tests. `deny_cache_mb` is how
        much memory known denials may take, where the store is a server; 0 is no deny cache.
        `max_waiters` is how many callers may wait at a time (`acquire`).

        For rules with `regions` in their spread: `region` is the name of the region that this program
        is in, whose store is at `url`; `regions` are the addresses of the others' stores, by name;
        `gossip_seconds` is how often counts are exchanged.
        """
        queues = wiring.wait_queues(clock, max_waiters)
        of_regions = wiring.Regions(region, regions or {}, gossip_seconds)
        parts = wiring.parts(url, rules, clock, deny_cache_mb=deny_cache_mb, regions=of_regions)
        return cls(*parts, queues=queues)

    async def close(self) -> None:
        """Stop following the rules and close the store. Those who still wait get a `StoreError`."""
        await self.acquirer.close()
        await super().close()

    async def acquire(
        self,
        subject: Request | str,
        limit: str | Limit | None = None,
        cost: int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (it is known in advance whether it is too short)
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> Verdict:
        """Wait until a key's limit, or all rules for a request, admit it, after those who wait for the same already.

        Raises `AcquireTimeout` as soon as it is certain that `timeout` seconds are too short, `Refused` at once if
        it can never be admitted, and `Overloaded` if too many wait. An admission with a delay is waited for too.
        """
        return await self.acquirer.acquire(Terms(subject, limit, cost, timeout, algorithm))

    def acquiring(
        self,
        subject: Request | str | Callable[..., Request | str],
        limit: str | Limit | None = None,
        cost: int | Callable[..., int] | None = None,
        *,
        timeout: float | None = None,
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> Acquiring:
        """`acquire` for ``async with`` and as a decorator; slots are freed at the end of the block or call.

        As a decorator, `subject` and `cost` may be functions of the decorated function's arguments.
        """
        return Acquiring(self.acquirer, Terms(subject, limit, cost, timeout, algorithm))

    def iterate(
        self,
        items: Iterable[T] | AsyncIterable[T],
        limit: str | Limit,
        *,
        key: str | None = None,
        cost: int | Callable[[T], int] = 1,
        timeout: float | None = None,
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> AsyncGenerator[T]:
        """The items, each as soon as the limit admits it; use it in ``async for``.

        `key` is for loops that share the limit; without it the limit is this loop's own. `cost` may be a
        function of the item, and `timeout` is for each of them.
        """
        return iterate(items, self.acquirer.each(limit, key, cost, timeout, algorithm))

    def slot(
        self,
        key: str,
        limit: str | Limit,
        *,
        ttl: float | None = None,
        wait: float | bool = False,
    ) -> Slot:
        """Hold one of a key's slots while a block runs; free again after `ttl` seconds if the holder dies.

        `wait` is for how many seconds to wait for one, True for as long as it takes; then `AcquireTimeout` is
        raised in place of `Refused`.
        """
        return Slot(self._returns, self.bare_keys.slot(key, limit, ttl), self.acquirer.waiting_for_slot(wait))
