"""The limiter for synchronous programs: the same methods, without `await`.

    from headgate import Request
    from headgate.sync import Limiter

    with Limiter.open("memory://", [{"name": "search", "per": "user", "limits": "1/minute"}]) as limiter:
        request = Request(user="u_42", method="GET", path="/api/search")
        assert limiter.check(request).allowed
        assert limiter.check(request).status == 429

Each method runs the asynchronous one to its end. With counters in memory that never waits, so it needs neither an
event loop nor a thread. Any other store runs on an event loop in the background, which all threads share.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from headgate import facade, wiring
from headgate.adapters.clock import monotonic, wall_clock
from headgate.core.meter import DEFAULT_ALGORITHM
from headgate.dataplane.acquiring import check_plain_function
from headgate.dataplane.deny_cache import DEFAULT_MEGABYTES
from headgate.dataplane.limiter import run_now
from headgate.dataplane.wait_queues import MAX_WAITERS
from headgate.errors import InvalidRequest, short_repr
from headgate.ports import LeasingStore, LocalStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Generator, Mapping
    from typing import Self

    from headgate.core.limit import Limit
    from headgate.core.matching import Plan
    from headgate.core.request import Request
    from headgate.core.units import Micros
    from headgate.core.verdict import Verdict
    from headgate.dataplane import acquiring, reservations
    from headgate.dataplane import limiter as asynchronous
    from headgate.wiring import Rules

_SECONDS_BETWEEN_LOOKS = 1.0
T = TypeVar("T")
P = ParamSpec("P")


class Limiter:
    """`headgate.Limiter` for synchronous programs; safe to share between threads."""

    def __init__(self, limiter: asynchronous.Limiter) -> None:
        """Wrap an asynchronous limiter; people call `Limiter.open`."""
        self._limiter = self.waiting = limiter
        """The same with `await`, which never really waits."""
        self._check = limiter.check_now
        self._check_held = limiter.check_held
        if limiter.hit_now is not None:
            self.hit = limiter.hit_now  # type: ignore[method-assign] # spares a call on the hottest way
        elif isinstance(limiter.store, LeasingStore):
            self.hit = limiter.store.held_path(limiter.bare_keys.meters, self.hit)  # type: ignore[method-assign,assignment] # as above; its slow path always answers
        self._next_look = monotonic() + _SECONDS_BETWEEN_LOOKS

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
        """As `headgate.Limiter.open`; use it in ``with``, or call `close`."""
        queues = wiring.wait_queues(clock, max_waiters, blocks=True)
        of_regions = wiring.Regions(region, regions or {}, gossip_seconds)
        store, snapshots, bare_keys, follower = wiring.parts(url, rules, clock, regions=of_regions)
        if not isinstance(store, LocalStore):  # it makes its caller wait, and each process needs one of its own
            store = wiring.blocking_store(url, clock, deny_cache_mb=deny_cache_mb, regions=of_regions)
        return cls(facade.Limiter(store, snapshots, bare_keys, follower, queues=queues))

    def __enter__(self) -> Self:
        """Nothing has to be started."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the store."""
        self.close()

    def close(self) -> None:
        """Close the store."""
        run_now(self._limiter.close())

    def check(self, request: Request, cost: int | None = None) -> Verdict:
        """Decide a request, and count it if every rule admits it."""
        self._look_at_rules()
        held = self._check_held(request, cost)
        if held is not None:
            return held
        return run_now(self._limiter.check(request, cost)) if self._check is None else self._check(request, cost)

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        """The hits that the store has to take for a request; none if the request is blocked or exempt."""
        self._look_at_rules()
        return self._limiter.plan(request, cost)

    def decide(self, plan: Plan) -> Verdict:
        """Take the hits of a plan, and return the verdict."""
        return run_now(self._limiter.decide(plan))

    def check_many(self, requests: Iterable[Request], cost: int | None = None) -> list[Verdict]:
        """Decide several requests, each by itself, in order."""
        return [self.check(request, cost) for request in requests]

    def hit(self, key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> Verdict:
        """Take `cost` from a key's limit."""
        return run_now(self._limiter.hit(key, limit, cost, algorithm=algorithm))

    def reserve(
        self,
        subject: Request | str,
        limit: str | Limit | None = None,
        cost: int | None = None,
        *,
        ttl: float = 60.0,
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> Reservation:
        """Take `cost` now and settle what it really was later; use it in ``with``."""
        self._look_at_rules()
        return Reservation(self._limiter.reserve(subject, limit, cost, ttl=ttl, algorithm=algorithm))

    def slot(
        self,
        key: str,
        limit: str | Limit,
        *,
        ttl: float | None = None,
        wait: float | bool = False,
    ) -> Slot:
        """Hold one of a key's slots while a block runs; use it in ``with``. `wait` is for how many seconds to wait."""
        if wait is False:
            return Slot(self._limiter.slot(key, limit, ttl=ttl))
        return Slot(self._with_queues().slot(key, limit, ttl=ttl, wait=wait))

    def acquire(
        self,
        subject: Request | str,
        limit: str | Limit | None = None,
        cost: int | None = None,
        *,
        timeout: float | None = None,
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> Verdict:
        """Block until a key's limit, or all rules for a request, admit it; see `headgate.Limiter.acquire`."""
        self._look_at_rules()
        return run_now(self._with_queues().acquire(subject, limit, cost, timeout=timeout, algorithm=algorithm))

    def acquiring(
        self,
        subject: Request | str | Callable[..., Request | str],
        limit: str | Limit | None = None,
        cost: int | Callable[..., int] | None = None,
        *,
        timeout: float | None = None,
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> Acquiring:
        """`acquire` for ``with`` and as a decorator; see `headgate.Limiter.acquiring`."""
        limiter = self._with_queues()
        return Acquiring(limiter.acquiring(subject, limit, cost, timeout=timeout, algorithm=algorithm))

    def iterate(
        self,
        items: Iterable[T] | AsyncIterable[T],
        limit: str | Limit,
        *,
        key: str | None = None,
        cost: int | Callable[[T], int] = 1,
        timeout: float | None = None,
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> Generator[T]:
        """The items, each as soon as the limit admits it; see `headgate.Limiter.iterate`."""
        if not isinstance(items, Iterable):
            msg = f"{short_repr(items)} needs `async for`; use `iterate` of a headgate.Limiter"
            raise InvalidRequest(msg)
        return _iterate(items, self._with_queues().acquirer.each(limit, key, cost, timeout, algorithm))

    def _with_queues(self) -> facade.Limiter:
        if not isinstance(self._limiter, facade.Limiter):
            msg = "the limiter of a middleware does not wait; open one of your own with headgate.sync.Limiter.open"
            raise InvalidRequest(msg)
        return self._limiter

    def peek(
        self,
        subject: Request | str,
        limit: str | Limit | None = None,
        cost: int | None = None,
        *,
        algorithm: str = DEFAULT_ALGORITHM,
        replica: bool | None = None,
    ) -> Verdict:
        """What `check` or `hit` would answer. Changes nothing. `replica` is as `headgate.Limiter.peek` takes it."""
        self._look_at_rules()
        return run_now(self._limiter.peek(subject, limit, cost, algorithm=algorithm, replica=replica))

    def reset(
        self, subject: Request | str, limit: str | Limit | None = None, *, algorithm: str = DEFAULT_ALGORITHM
    ) -> None:
        """Forget what was counted for a request's counters, or for a key under a limit."""
        self._look_at_rules()
        run_now(self._limiter.reset(subject, limit, algorithm=algorithm))

    def refund(self, verdict: Verdict, amount: int | None = None) -> None:
        """Give back what a verdict took, slots included, or `amount` of it. Only the first refund of it counts."""
        run_now(self._limiter.refund(verdict, amount))

    def _look_at_rules(self) -> None:
        """Follow a rules file without a thread: a call looks at the file if a second has passed."""
        follower = self._limiter.follower
        if follower is not None and monotonic() >= self._next_look:
            self._next_look = monotonic() + _SECONDS_BETWEEN_LOOKS
            follower.poll()


class Reservation:
    """`headgate.dataplane.reservations.Reservation` for synchronous programs."""

    def __init__(self, reservation: reservations.Reservation) -> None:
        """Wrap an asynchronous reservation."""
        self._reservation = reservation

    @property
    def verdict(self) -> Verdict:
        """How taking it went."""
        return self._reservation.verdict

    @property
    def reserved(self) -> int:
        """The amount taken."""
        return self._reservation.reserved

    def take(self) -> Self:
        """Take it; a denial is in `verdict`."""
        run_now(self._reservation.take())
        return self

    def settle(self, actual: int) -> None:
        """Note what was really used; it is booked when the block ends, or by `close`."""
        self._reservation.settle(actual)

    def close(self, actual: int | None = None) -> None:
        """Book the actual amount, now. Only the first time counts."""
        run_now(self._reservation.close(actual))

    def __enter__(self) -> Self:
        """Take it; raise `Refused` on a denial, since the block must not run."""
        run_now(self._reservation.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        """Book what was settled, if anything was."""
        run_now(self._reservation.__aexit__(*exc))


class Slot:
    """`headgate.dataplane.reservations.Slot` for synchronous programs."""

    def __init__(self, slot: reservations.Slot) -> None:
        """Wrap an asynchronous slot."""
        self._slot = slot

    @property
    def verdict(self) -> Verdict:
        """How taking it went."""
        return self._slot.verdict

    def take(self) -> Self:
        """Take it; a denial is in `verdict`."""
        run_now(self._slot.take())
        return self

    def renew(self) -> bool:
        """Start the ttl anew; False if the slot was lost to another holder meanwhile."""
        return run_now(self._slot.renew())

    def close(self) -> None:
        """Free the slot, now."""
        run_now(self._slot.close())

    def __enter__(self) -> Self:
        """Take it; raise `Refused` on a denial, since the block must not run."""
        run_now(self._slot.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        """Free the slot."""
        run_now(self._slot.__aexit__(*exc))


class Acquiring:
    """`headgate.dataplane.acquiring.Acquiring` for synchronous programs."""

    def __init__(self, acquiring: acquiring.Acquiring) -> None:
        """Wrap an asynchronous one."""
        self._acquiring = acquiring

    def __enter__(self) -> Verdict:
        """Block until it is admitted."""
        return run_now(self._acquiring.__aenter__())

    def __exit__(self, *exc: object) -> None:
        """Free the slots."""
        run_now(self._acquiring.__aexit__(*exc))

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """A function whose calls block until they are admitted."""
        check_plain_function(function)

        @wraps(function)
        def waiting(*arguments: P.args, **named: P.kwargs) -> T:
            with Acquiring(self._acquiring.for_call(*arguments, **named)):
                return function(*arguments, **named)

        return waiting


def _iterate(items: Iterable[T], each: acquiring.Acquiring) -> Generator[T]:
    for item in items:
        with Acquiring(each.for_call(item)):
            yield item
