"""The storages that `limits` finds by their schemes, with and without `await`."""

from __future__ import annotations

from typing import Any, Final

try:
    import limits.aio.storage
    import limits.storage
    from limits.errors import ConfigurationError
    from limits.limits import GRANULARITIES
except ModuleNotFoundError as error:
    msg = "headgate.limits is a storage for the library limits, which is not installed: pip install limits"
    raise ModuleNotFoundError(msg) from error

from headgate import wiring
from headgate.adapters.clock import wall_clock
from headgate.adapters.redis import REDIS_SCHEMES
from headgate.core.spread import SpreadMode
from headgate.dataplane.limiter import run_now
from headgate.errors import InvalidSettings, StoreError, short_repr
from headgate.limits.counters import LimitsCounters
from headgate.ports import LocalStore

_ASYNC: Final = "async+"
_OURS: Final = "headgate+"
_SCHEMES: Final = [f"{_OURS}{scheme}" for scheme in ("memory", "embedded", *REDIS_SCHEMES)]


def _counters(uri: str | None, prefix: str, options: dict[str, float | str | bool], *, awaits: bool) -> LimitsCounters:
    """The counters at ``headgate+redis://…``."""
    if options:
        first = short_repr(min(options))
        msg = f"{_OURS}… has no storage option {first}; options stand in the address, as ?deadline_ms=50"
        raise ConfigurationError(msg)
    url = (uri or f"{_OURS}memory://").removeprefix(_ASYNC).removeprefix(_OURS)
    try:
        policy = wiring.failure_policy(url)
        if policy is not None and policy.spread is not None and policy.spread.mode is not SpreadMode.EXACT:
            msg = (
                f"spread={policy.spread.mode.value} does not go with limits, which compares counts itself: leave it out"
            )
            raise ConfigurationError(msg)
        store, _, bare_keys, _ = wiring.parts(url)
        if not awaits and not isinstance(store, LocalStore):
            store = wiring.blocking_store(url)
    except InvalidSettings as error:
        raise ConfigurationError(str(error)) from error
    degrades = "on_store_error=" in url
    return LimitsCounters(store, bare_keys, wall_clock, unit_seconds=unit_seconds, prefix=prefix, degrades=degrades)


def unit_seconds(unit: str) -> int | None:
    """How long a unit is: one of limits', or of a class that the program has derived from `RateLimitItem`."""
    item = GRANULARITIES.get(unit)
    return None if item is None else item.GRANULARITY.seconds


class _Origin:
    """What a storage was made of, to make it again in another process; counters in memory do not travel."""

    def _remember(self, uri: str | None, prefix: str) -> None:
        self._uri = uri or f"{_OURS}memory://"
        self._key_prefix = prefix

    @property
    def storage(self) -> str:
        """The kind of store, as ``flask limiter config`` shows it; the address may hold a password."""
        return self._uri.removeprefix(_ASYNC).removeprefix(_OURS).partition(":")[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Make it again from its address."""
        wraps: Any = self
        return type(self), (self._uri, wraps.wrap_exceptions, self._key_prefix)


class HeadgateStorage(
    _Origin, limits.storage.Storage, limits.storage.MovingWindowSupport, limits.storage.SlidingWindowCounterSupport
):
    """A storage for `limits`, flask-limiter and slowapi. Safe under threads and after forks."""

    STORAGE_SCHEME = _SCHEMES

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,  # noqa: FBT001, FBT002 (as limits calls it)
        key_prefix: str = "",
        **options: float | str | bool,
    ) -> None:
        """`uri` is an address of headgate after ``headgate+``; `key_prefix` stands before all keys."""
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._remember(uri, key_prefix)
        self._counters = _counters(uri, key_prefix, options, awaits=False)

    @property
    def base_exceptions(self) -> type[Exception]:
        """What is raised when the store does not answer."""
        return StoreError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """See `LimitsCounters.incr`."""
        return run_now(self._counters.incr(key, expiry, amount))

    def get(self, key: str) -> int:
        """See `LimitsCounters.get`."""
        return run_now(self._counters.get(key))

    def get_expiry(self, key: str) -> float:
        """See `LimitsCounters.get_expiry`."""
        return run_now(self._counters.get_expiry(key))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """See `LimitsCounters.acquire_entry`."""
        return run_now(self._counters.acquire_entry(key, limit, expiry, amount))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """See `LimitsCounters.get_moving_window`."""
        return run_now(self._counters.get_moving_window(key, limit, expiry))

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """See `LimitsCounters.acquire_sliding_window_entry`."""
        return run_now(self._counters.acquire_sliding_window_entry(key, limit, expiry, amount))

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """See `LimitsCounters.get_sliding_window`."""
        return run_now(self._counters.get_sliding_window(key, expiry))

    def clear(self, key: str) -> None:
        """See `LimitsCounters.clear`."""
        run_now(self._counters.clear(key))

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """See `LimitsCounters.clear_sliding_window`."""
        run_now(self._counters.clear_sliding_window(key, expiry))

    def check(self) -> bool:
        """See `LimitsCounters.check`."""
        return run_now(self._counters.check())

    def reset(self) -> int | None:
        """See `LimitsCounters.reset`."""
        return run_now(self._counters.reset())


class AsyncHeadgateStorage(
    _Origin,
    limits.aio.storage.Storage,
    limits.aio.storage.MovingWindowSupport,
    limits.aio.storage.SlidingWindowCounterSupport,
):
    """A storage for `limits.aio`."""

    STORAGE_SCHEME = [f"{_ASYNC}{scheme}" for scheme in _SCHEMES]  # noqa: RUF012 (as limits declares it)

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,  # noqa: FBT001, FBT002 (as limits calls it)
        key_prefix: str = "",
        **options: float | str | bool,
    ) -> None:
        """As `HeadgateStorage`, with ``async+`` before it."""
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._remember(uri, key_prefix)
        self._counters = _counters(uri, key_prefix, options, awaits=True)

    @property
    def base_exceptions(self) -> type[Exception]:
        """What is raised when the store does not answer."""
        return StoreError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """See `LimitsCounters.incr`."""
        return await self._counters.incr(key, expiry, amount)

    async def get(self, key: str) -> int:
        """See `LimitsCounters.get`."""
        return await self._counters.get(key)

    async def get_expiry(self, key: str) -> float:
        """See `LimitsCounters.get_expiry`."""
        return await self._counters.get_expiry(key)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """See `LimitsCounters.acquire_entry`."""
        return await self._counters.acquire_entry(key, limit, expiry, amount)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """See `LimitsCounters.get_moving_window`."""
        return await self._counters.get_moving_window(key, limit, expiry)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """See `LimitsCounters.acquire_sliding_window_entry`."""
        return await self._counters.acquire_sliding_window_entry(key, limit, expiry, amount)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """See `LimitsCounters.get_sliding_window`."""
        return await self._counters.get_sliding_window(key, expiry)

    async def clear(self, key: str) -> None:
        """See `LimitsCounters.clear`."""
        await self._counters.clear(key)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """See `LimitsCounters.clear_sliding_window`."""
        await self._counters.clear_sliding_window(key, expiry)

    async def check(self) -> bool:
        """See `LimitsCounters.check`."""
        return await self._counters.check()

    async def reset(self) -> int | None:
        """See `LimitsCounters.reset`."""
        return await self._counters.reset()
