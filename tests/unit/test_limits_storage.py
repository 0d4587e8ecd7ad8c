"""The storage for `limits`: its own strategies on headgate's algorithms."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING

import flask_limiter
import limits.aio.storage
import limits.aio.strategies
import limits.storage
import limits.strategies
import pytest
from flask import Flask
from flask_limiter.commands import cli
from limits import RateLimitItem, RateLimitItemPerHour, RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.errors import ConfigurationError, StorageError
from limits.limits import Granularity

from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import REDIS_SCHEMES
from headgate.adapters.zones import zone
from headgate.core.meter import Calendars
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.deny_cache import DenyCache
from headgate.errors import InvalidLimit, InvalidRequest, Overloaded, StoreError
from headgate.limits import AsyncHeadgateStorage, HeadgateStorage
from headgate.limits.counters import LimitsCounters
from headgate.limits.storage import unit_seconds
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from limits.strategies import RateLimiter

STRATEGIES = sorted(limits.strategies.STRATEGIES)


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands at the beginning of an hour."""
    return FakeClock()


@pytest.fixture
def storage(clock: FakeClock) -> HeadgateStorage:
    """A storage in this process, with that clock."""
    made = HeadgateStorage("headgate+memory://")
    made._counters = LimitsCounters(
        MemoryStore(clock), BareKeys(Calendars(zone, clock)), clock, unit_seconds=unit_seconds
    )
    return made


def _strategy(name: str, storage: HeadgateStorage) -> RateLimiter:
    return limits.strategies.STRATEGIES[name](storage)


@pytest.mark.parametrize("scheme", ["memory", "embedded", *REDIS_SCHEMES])
def test_every_store_has_a_scheme(scheme: str) -> None:
    """`limits` finds the storage by headgate's schemes behind `headgate+`, with and without await."""
    place = (
        "" if scheme == "memory" else "/socket" if "unix" in scheme else "host:7000/name" if "sent" in scheme else ""
    )
    for before, kind in (("", HeadgateStorage), ("async+", AsyncHeadgateStorage)):
        found = limits.storage.storage_from_string(f"{before}headgate+{scheme}://{place}")
        assert isinstance(found, kind)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_limit_holds_and_comes_back(name: str, storage: HeadgateStorage, clock: FakeClock) -> None:
    """Ten pass, the eleventh does not; when the windows have passed, ten pass again."""
    limiter, item = _strategy(name, storage), RateLimitItemPerMinute(10)
    assert [limiter.hit(item, "a") for _ in range(11)] == [True] * 10 + [False]
    assert not limiter.test(item, "a")
    assert limiter.hit(item, "b")
    clock.advance(seconds=120)
    assert limiter.test(item, "a")
    assert limiter.hit(item, "a", cost=10)
    assert not limiter.hit(item, "a")


@pytest.mark.parametrize("name", STRATEGIES)
def test_costs(name: str, storage: HeadgateStorage) -> None:
    """A hit may cost more than one, and one that costs more than the limit never passes."""
    limiter, item = _strategy(name, storage), RateLimitItemPerHour(10)
    assert not limiter.test(item, "a", cost=11)
    assert limiter.hit(item, "a", cost=6)
    assert limiter.test(item, "a", cost=4)
    assert not limiter.test(item, "a", cost=5)
    assert limiter.hit(item, "a", cost=4)
    assert not limiter.hit(item, "a", cost=1)
    if name != "fixed-window":  # which counts what it refuses, as limits has it
        assert not limiter.hit(item, "b", cost=11)
        assert limiter.hit(item, "b", cost=10)


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_left(name: str, storage: HeadgateStorage) -> None:
    """The statistics say what is left, and never less than nothing."""
    limiter, item = _strategy(name, storage), RateLimitItemPerMinute(10)
    assert limiter.get_window_stats(item, "a").remaining == 10
    limiter.hit(item, "a", cost=7)
    assert limiter.get_window_stats(item, "a").remaining == 3
    limiter.hit(item, "a", cost=3)
    limiter.hit(item, "a")
    assert limiter.get_window_stats(item, "a").remaining == 0


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("item", [RateLimitItemPerSecond(3, 30), RateLimitItemPerMinute(3, 5)], ids=str)
def test_clearing_a_key(name: str, item: RateLimitItem, storage: HeadgateStorage) -> None:
    """What was counted for one key is forgotten, and for no other."""
    limiter = _strategy(name, storage)
    for key in ("a", "b"):
        limiter.hit(item, key, cost=3)
    limiter.clear(item, "a")
    assert limiter.hit(item, "a")
    assert not limiter.hit(item, "b")


@pytest.mark.parametrize("name", STRATEGIES)
def test_resetting_everything(name: str, storage: HeadgateStorage) -> None:
    """`reset` forgets all that this process has counted."""
    limiter, item = _strategy(name, storage), RateLimitItemPerHour(1)
    assert [limiter.hit(item, key) for key in "abc"] == [True] * 3
    assert storage.reset() == 3
    assert [limiter.hit(item, key) for key in "abc"] == [True] * 3


def test_when_a_fixed_window_ends(storage: HeadgateStorage, clock: FakeClock) -> None:
    """Fixed windows begin at whole multiples of their length, for all keys alike."""
    item = RateLimitItemPerMinute(10)
    limiter = _strategy("fixed-window", storage)
    began = clock() / 1_000_000
    assert limiter.get_window_stats(item, "a").reset_time == began
    clock.advance(seconds=20)
    limiter.hit(item, "a")
    assert limiter.get_window_stats(item, "a").reset_time == began + 60
    assert storage.get_expiry("no key of limits") == began + 20


def test_when_a_moving_window_moves_on(storage: HeadgateStorage, clock: FakeClock) -> None:
    """The reset of a moving window is when its oldest entry leaves."""
    item = RateLimitItemPerMinute(10)
    limiter = _strategy("moving-window", storage)
    began = clock() / 1_000_000
    for _ in range(3):
        limiter.hit(item, "a")
        clock.advance(seconds=10)
    assert limiter.get_window_stats(item, "a") == (began + 60, 7)
    clock.advance(seconds=31)
    assert limiter.get_window_stats(item, "a") == (began + 70, 8)


def test_a_key_that_was_never_counted_is_none(storage: HeadgateStorage) -> None:
    """Keys that say nothing of their window, and were not used, have no count and can be cleared."""
    assert storage.get("plain") == 0
    storage.clear("plain")
    assert storage.incr("plain", 60, 2) == 2
    assert storage.get("plain") == 2
    storage.clear("plain")
    assert storage.get("plain") == 0


def test_options_stand_in_the_address() -> None:
    """Options of other storages are refused with a sentence, and so are addresses that are none."""
    with pytest.raises(ConfigurationError, match="'socket_timeout'"):
        HeadgateStorage("headgate+redis://", socket_timeout=3)
    with pytest.raises(ConfigurationError, match="max_counters"):
        HeadgateStorage("headgate+memory://?max_counters=none")
    with pytest.raises(ConfigurationError, match="spread=leased does not go with limits"):
        HeadgateStorage("headgate+redis://127.0.0.1:1?spread=leased")


def test_prefixes_keep_applications_apart(storage: HeadgateStorage) -> None:
    """Two storages on one store with different prefixes count apart."""
    mine = storage._counters
    other = HeadgateStorage("headgate+memory://")
    other._counters = LimitsCounters(
        mine._store, mine._bare_keys, mine._clock, unit_seconds=unit_seconds, prefix="other"
    )
    assert storage.incr("k", 60) == 1
    assert other.incr("k", 60) == 1
    assert storage.incr("k", 60) == 2


@pytest.mark.parametrize(("wrap", "raised"), [(False, StoreError), (True, StorageError)])
def test_an_unavailable_store_is_an_error_unless_the_address_says_otherwise(
    wrap: bool,  # noqa: FBT001 (a parameter of the test)
    raised: type[Exception],
) -> None:
    """So flask-limiter's own fallbacks and error handling decide; with on_store_error, headgate does."""
    storage = HeadgateStorage("headgate+redis://127.0.0.1:1", wrap_exceptions=wrap)
    assert not storage.check()
    with pytest.raises(raised):
        storage.incr("k", 60)
    allowing = HeadgateStorage("headgate+redis://127.0.0.1:1?on_store_error=allow")
    assert allowing.acquire_entry("k", 1, 60)
    denying = HeadgateStorage("headgate+redis://127.0.0.1:1?on_store_error=deny")
    assert not denying.acquire_entry("k", 1, 60)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_check_that_is_shed_is_refused(name: str, storage: HeadgateStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too much in flight a hit is refused and a look says that nothing is left; nothing of it is an error."""

    async def shed(_hits: object) -> None:
        raise Overloaded

    for ask in ("take", "peek"):
        monkeypatch.setattr(storage._counters._store, ask, shed)
    limiter, item = _strategy(name, storage), RateLimitItemPerMinute(5)
    assert not limiter.hit(item, "a")
    assert not limiter.test(item, "a")
    assert limiter.get_window_stats(item, "a").remaining == 0
    assert storage.check()


def test_what_the_deny_cache_refuses_is_an_answer() -> None:
    """A refusal from memory is as good as one of the store, and no error."""
    clock = FakeClock()
    storage = HeadgateStorage("headgate+memory://")
    cache = DenyCache(MemoryStore(clock), lambda: clock() * 1_000)
    storage._counters = LimitsCounters(cache, BareKeys(Calendars(zone, clock)), clock, unit_seconds=unit_seconds)
    limiter, item = _strategy("moving-window", storage), RateLimitItemPerMinute(2)
    assert [limiter.hit(item, "a") for _ in range(5)] == [True, True, False, False, False]
    assert cache.hits == 2


def test_the_same_with_await() -> None:
    """`limits.aio` runs on it too."""

    async def run() -> None:
        storage = limits.storage.storage_from_string("async+headgate+memory://")
        assert isinstance(storage, AsyncHeadgateStorage)
        assert await storage.check()
        item = RateLimitItemPerHour(2)
        for name, kind in limits.aio.strategies.STRATEGIES.items():
            limiter = kind(storage)  # type: ignore[abstract] # those in the table are not
            assert [await limiter.hit(item, name) for _ in range(3)] == [True, True, False]
            assert not await limiter.test(item, name)
            assert (await limiter.get_window_stats(item, name)).remaining == 0
            await limiter.clear(item, name)
            assert await limiter.hit(item, name)
        assert await storage.reset() == 3

    asyncio.run(run())


class PerFortnight(RateLimitItem):
    """A unit of the program's own."""

    GRANULARITY = Granularity(14 * 86_400, "fortnight")


def test_units_of_a_programs_own(storage: HeadgateStorage) -> None:
    """A fresh process knows what was counted under a unit that limits does not have: `test` says what `hit` would."""
    item = PerFortnight(1)
    assert _strategy("fixed-window", storage).hit(item, "a")
    mine = storage._counters
    fresh = HeadgateStorage("headgate+memory://")
    fresh._counters = LimitsCounters(mine._store, mine._bare_keys, mine._clock, unit_seconds=unit_seconds)
    limiter = _strategy("fixed-window", fresh)
    assert not limiter.test(item, "a")
    assert limiter.get_window_stats(item, "a").remaining == 0
    limiter.clear(item, "a")
    assert limiter.hit(item, "a")
    assert fresh.get("LIMITER/a/1/1/no-unit") == 0


def test_a_moving_window_that_is_too_large_says_which_strategy_to_use(storage: HeadgateStorage) -> None:
    """More entries than a moving window keeps are refused with a sentence in limits' own words."""
    limiter, item = _strategy("moving-window", storage), RateLimitItemPerHour(70_000)
    for ask in (limiter.hit, limiter.test, limiter.get_window_stats):
        with pytest.raises(InvalidLimit, match=r"70000 is too large for the strategy moving-window.*use sliding"):
            ask(item, "a")


@pytest.mark.parametrize("name", STRATEGIES)
def test_costs_that_are_not_whole_say_what_to_do(name: str, storage: HeadgateStorage) -> None:
    """A cost in parts is refused with a sentence."""
    with pytest.raises(InvalidRequest, match=r"a cost is a whole number, not 0\.5; to count in parts, multiply limits"):
        _strategy(name, storage).hit(RateLimitItemPerHour(10), "a", cost=0.5)  # type: ignore[arg-type] # on purpose


def test_a_storage_can_be_pickled() -> None:
    """It is made again from its address, in a process that has none of its connections."""
    made = HeadgateStorage("headgate+redis://127.0.0.1:1?on_store_error=deny", wrap_exceptions=True, key_prefix="p")
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own)
    assert isinstance(again, HeadgateStorage)
    assert (again.wrap_exceptions, again.storage) == (True, "redis")
    assert again._key_prefix == "p"
    awaiting = pickle.loads(pickle.dumps(AsyncHeadgateStorage("async+headgate+memory://")))  # noqa: S301 (our own)
    assert isinstance(awaiting, AsyncHeadgateStorage)
    assert awaiting.storage == "memory"


def test_the_command_of_flask_limiter_shows_the_storage() -> None:
    """`flask limiter config` names the kind of store and says whether it answers."""
    app = Flask("app")
    flask_limiter.Limiter(lambda: "all", app=app, storage_uri="headgate+memory://")
    shown = app.test_cli_runner().invoke(cli, ["config"])
    assert shown.exit_code == 0, shown.output
    assert "HeadgateStorage" in shown.output
    assert "OK" in shown.output
