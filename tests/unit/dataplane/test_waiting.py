"""Waiting on an event loop: order, wakes, timeouts and cancellation, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request, wiring
from headgate.core.meter import Algorithm
from headgate.errors import (
    AcquireTimeout,
    InvalidLimit,
    InvalidRequest,
    InvalidSettings,
    Overloaded,
    Refused,
    StoreError,
)
from headgate.testing import FakeClock
from headgate.testing.clock import NEW_YEAR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from headgate.core.decision import Decision, Hit

RATES = [algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]
FIXED = "fixed_window"


async def settle_down() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


def seconds(clock: FakeClock) -> float:
    return (clock.now - NEW_YEAR) / 1_000_000


def in_order(
    limiter: Limiter, served: list[int], count: int, key: str, limit: str, algorithm: str = "fixed_window"
) -> list[asyncio.Task[None]]:
    async def one(number: int) -> None:
        await limiter.acquire(key, limit, algorithm=algorithm)
        served.append(number)

    return [asyncio.create_task(one(number)) for number in range(count)]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


@pytest.mark.parametrize("algorithm", RATES)
def test_waiters_are_admitted_in_order_at_the_rate(algorithm: str) -> None:
    """Whatever the algorithm, waiters of a key are admitted in their order, as many in a period as the limit says."""

    async def scenario() -> None:
        clock, served = FakeClock(), list[int]()
        async with Limiter.open(clock=clock) as limiter:
            tasks = in_order(limiter, served, 9, "k", "3/second", algorithm=algorithm)
            for _ in range(40):
                await settle_down()
                clock.advance(seconds=0.1)
                assert len(served) <= 3 + 3 * seconds(clock) + (0 if algorithm == "token_bucket" else 3)
            await asyncio.gather(*tasks)
            assert served == list(range(9))
            assert limiter.acquirer._waiter._queues.waiting == 0

    run(scenario())


@pytest.mark.parametrize("algorithm", RATES)
def test_a_wait_ends_exactly_when_the_refusal_says(algorithm: str) -> None:
    """A waiter is admitted at its `retry_after`, neither a microsecond before nor any later, with its cost."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            while (
                await limiter.hit(
                    "k", "10/minute burst 10" if "bucket" in algorithm else "10/minute", 2, algorithm=algorithm
                )
            ).allowed:
                pass
            limit = "10/minute burst 10" if "bucket" in algorithm else "10/minute"
            wait = (await limiter.peek("k", limit, 4, algorithm=algorithm)).wait
            assert wait is not None
            task = asyncio.create_task(limiter.acquire("k", limit, 4, algorithm=algorithm))
            await settle_down()
            clock.advance(micros=wait - 1)
            await settle_down()
            assert not task.done()
            clock.advance(micros=1)
            await settle_down()
            while not task.done() and algorithm == "leaky_bucket":  # the delay of its place in the queue
                clock.advance(seconds=1)
                await settle_down()
            assert (await task).allowed

    run(scenario())


def test_a_delay_is_waited_for() -> None:
    """An admission with a delay, as a leaky bucket gives it, is over when the delay is; the next one follows."""

    async def scenario() -> None:
        clock, served = FakeClock(), list[int]()
        async with Limiter.open(clock=clock) as limiter:
            tasks = in_order(limiter, served, 4, "k", "2/second burst 9", algorithm="leaky_bucket")
            times: list[float] = []
            while len(times) < 4:
                await settle_down()
                times += [seconds(clock)] * (len(served) - len(times))
                clock.advance(seconds=0.1)
            await asyncio.gather(*tasks)
            assert times == pytest.approx([0.0, 0.5, 1.0, 1.5])

    run(scenario())


def test_a_delay_that_is_too_long_is_given_back() -> None:
    """An admission whose delay exceeds the timeout raises at once, and leaves the bucket as it was."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            await limiter.hit("k", "1/minute burst 9", algorithm="leaky_bucket")
            before = (await limiter.peek("k", "1/minute burst 9", 0, algorithm="leaky_bucket")).remaining
            with pytest.raises(AcquireTimeout) as raised:
                await limiter.acquire("k", "1/minute burst 9", timeout=5, algorithm="leaky_bucket")
            assert raised.value.seconds == 60.0
            assert (await limiter.peek("k", "1/minute burst 9", 0, algorithm="leaky_bucket")).remaining == before

    run(scenario())


def test_only_the_first_waiter_asks() -> None:
    """A hundred waiters ask the store once for each admission and once for each refusal, and not while they wait."""

    async def scenario() -> None:
        clock, served, store = FakeClock(), list[int](), Counting()
        limiter = store.limiter(clock)
        tasks = in_order(limiter, served, 100, "k", "10/second", algorithm=FIXED)
        for _ in range(10):
            await settle_down()
            await settle_down()
            clock.advance(seconds=0.5)
            await settle_down()
            clock.advance(seconds=0.5)
        await settle_down()
        await asyncio.gather(*tasks)
        assert served == list(range(100))
        assert store.takes == 100 + 9

    run(scenario())


def test_what_is_given_back_wakes_the_first_waiter() -> None:
    """A refund, a settled reservation, a released slot and a reset admit the first waiter early."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            taken = await limiter.hit("k", "1/hour")
            task = asyncio.create_task(limiter.acquire("k", "1/hour"))
            await settle_down()
            await limiter.refund(taken)
            await settle_down()
            assert task.done()

            task = asyncio.create_task(limiter.acquire("k", "1/hour"))
            await settle_down()
            await limiter.reset("k", "1/hour")
            await settle_down()
            assert task.done()

            async with limiter.reserve("r", "10/hour", 10) as reservation:
                task = asyncio.create_task(limiter.acquire("r", "10/hour", 4))
                await settle_down()
                assert not task.done()
                reservation.settle(6)
            await settle_down()
            assert task.done()

            async with limiter.slot("s", "1 concurrent"):
                task = asyncio.create_task(limiter.acquire("s", "1 concurrent"))
                await settle_down()
                assert not task.done()
            await settle_down()
            assert task.done()
            assert clock.now == NEW_YEAR

    run(scenario())


def test_what_is_given_back_to_others_wakes_no_waiter() -> None:
    """A refund on another key does not make a waiter ask."""

    async def scenario() -> None:
        clock, store = FakeClock(), Counting()
        limiter = store.limiter(clock)
        other = await limiter.hit("other", "1/hour")
        await limiter.hit("k", "1/hour")
        task = asyncio.create_task(limiter.acquire("k", "1/hour"))
        await settle_down()
        before = store.takes
        await limiter.refund(other)
        await settle_down()
        assert store.takes == before
        task.cancel()

    run(scenario())


def test_what_is_given_back_while_the_store_answers_is_not_missed() -> None:
    """A refund between a refusal and its arrival makes the waiter ask again at once."""

    async def scenario() -> None:
        clock, store = FakeClock(), Counting()
        limiter = store.limiter(clock)
        taken = await limiter.hit("k", "1/hour")
        store.gate.clear()
        task = asyncio.create_task(limiter.acquire("k", "1/hour"))
        await settle_down()
        await limiter.refund(taken)  # decided before, answered after
        store.gate.set()
        await settle_down()
        assert task.done()

    run(scenario())


def test_a_slot_that_another_process_releases_is_noticed_within_a_second() -> None:
    """A waiter for a slot looks once a second, because a release elsewhere is not announced."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            slot = await limiter.slot("s", "1 concurrent", ttl=600)
            task = asyncio.create_task(limiter.acquire("s", "1 concurrent"))
            await settle_down()
            await limiter.store.give_back(slot.verdict.receipts)  # as another process would
            await settle_down()
            assert not task.done()
            clock.advance(seconds=1)
            await settle_down()
            assert task.done()

    run(scenario())


def test_a_slot_may_be_waited_for() -> None:
    """`slot(..., wait=…)` waits for a slot, and raises `AcquireTimeout` when the time is over."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            async with limiter.slot("s", "1 concurrent", ttl=600):
                waiting = asyncio.create_task(limiter.slot("s", "1 concurrent", wait=2.5).take())
                for _ in range(2):
                    await settle_down()
                    clock.advance(seconds=1)
                await settle_down()
                assert not waiting.done()
                clock.advance(seconds=0.5)
                await settle_down()
                with pytest.raises(AcquireTimeout, match="limited by default"):
                    await waiting
                with pytest.raises(AcquireTimeout):
                    await limiter.slot("s", "1 concurrent", wait=0)
                waiting = asyncio.create_task(limiter.slot("s", "1 concurrent", wait=True).take())
                await settle_down()
            slot = await waiting
            assert slot.verdict.allowed
            assert await slot.take() is slot
            await slot.close()
        with pytest.raises(InvalidRequest, match="a timeout is a number of seconds"):
            limiter.slot("s", "1 concurrent", wait=-1)

    run(scenario())


def test_a_timeout_is_raised_as_soon_as_it_is_certain() -> None:
    """A wait that is known to exceed the timeout is refused without waiting, also behind others."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            await limiter.hit("k", "1/minute", algorithm=FIXED)
            with pytest.raises(AcquireTimeout, match=r"within 5 s: limited by default, .* in 60\.000 s") as raised:
                await limiter.acquire("k", "1/minute", timeout=5, algorithm=FIXED)
            assert (raised.value.seconds, raised.value.timeout) == (60.0, 5)
            assert raised.value.verdict is not None
            assert isinstance(raised.value, TimeoutError)
            first = asyncio.create_task(limiter.acquire("k", "1/minute", algorithm=FIXED))
            await settle_down()
            with pytest.raises(AcquireTimeout, match="others wait before it") as raised:
                await limiter.acquire("k", "1/minute", timeout=59, algorithm=FIXED)
            assert raised.value.verdict is None
            second = asyncio.create_task(limiter.acquire("k", "1/minute", timeout=90, algorithm=FIXED))
            await settle_down()
            clock.advance(seconds=60)
            await settle_down()
            assert first.done()
            with pytest.raises(AcquireTimeout):  # its turn has come, and the next window is too late
                await second

    run(scenario())


def test_a_timeout_behind_others_ends_when_its_time_has_passed() -> None:
    """A waiter that is not the first leaves the queue when its time is over, and the others stay."""

    async def scenario() -> None:
        clock, served = FakeClock(), list[int]()
        async with Limiter.open(clock=clock) as limiter, limiter.slot("s", "1 concurrent", ttl=600):
            (task,) = in_order(limiter, served, 1, "s", "1 concurrent")
            await settle_down()
            late = asyncio.create_task(limiter.acquire("s", "1 concurrent", timeout=3))
            await settle_down()
            clock.advance(seconds=2)
            await settle_down()
            assert not late.done()
            clock.advance(seconds=1)
            await settle_down()
            with pytest.raises(AcquireTimeout, match="others wait before it"):
                await late
            assert not task.done()
            task.cancel()

    run(scenario())


def test_what_can_never_be_admitted_is_refused_at_once() -> None:
    """A cost above the limit raises `Refused` at once, even where others wait."""

    async def scenario() -> None:
        async with Limiter.open(clock=FakeClock()) as limiter:
            await limiter.hit("k", "1/hour")
            first = asyncio.create_task(limiter.acquire("k", "1/hour"))
            await settle_down()
            with pytest.raises(Refused, match="never"):
                await limiter.acquire("k", "1/hour", 2)
            first.cancel()

    run(scenario())


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_cancelled_waiter_leaves_nothing(position: int) -> None:
    """Whichever waiter is cancelled, the others are admitted in order, and nothing is counted for it."""

    async def scenario() -> None:
        clock, served = FakeClock(), list[int]()
        async with Limiter.open(clock=clock) as limiter:
            await limiter.hit("k", "1/second", algorithm=FIXED)
            tasks = in_order(limiter, served, 3, "k", "1/second", algorithm=FIXED)
            await settle_down()
            tasks[position].cancel()
            await settle_down()
            for _ in range(2):
                clock.advance(seconds=1)
                await settle_down()
            assert served == [number for number in range(3) if number != position]
            queues = limiter.acquirer._waiter._queues
            assert (queues.waiting, queues._queues, queues._by_counter) == (0, {}, {})
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert clock._calls == []

    run(scenario())


def test_a_waiter_that_is_cancelled_while_the_store_answers_leaves_no_count() -> None:
    """What the store takes for a waiter that is gone is given back, and the next one gets it."""

    async def scenario() -> None:
        clock, store, served = FakeClock(), Counting(), list[int]()
        limiter = store.limiter(clock)
        store.gate.clear()
        tasks = in_order(limiter, served, 2, "k", "1/hour")
        await settle_down()
        tasks[0].cancel()
        await settle_down()
        assert tasks[0].cancelled()
        store.gate.set()
        await settle_down()
        assert served == [1]
        closing = asyncio.create_task(limiter.acquire("other", "1/hour"))
        store.gate.clear()
        await settle_down()
        closing.cancel()
        await settle_down()
        asyncio.get_running_loop().call_soon(store.gate.set)
        await limiter.close()  # waits for what is given back
        assert store.inner.peek_now(store.last)[0].allowed

    run(scenario())


def test_a_waiter_that_is_cancelled_during_its_delay_leaves_no_count(caplog: pytest.LogCaptureFixture) -> None:
    """What was taken for a waiter that is gone before its delay is over is given back, or a log says why not."""

    async def scenario() -> None:
        clock, store = FakeClock(), Counting()
        limiter = store.limiter(clock)
        limit = "1/minute burst 9"
        await limiter.hit("k", limit, algorithm="leaky_bucket")
        before = (await limiter.peek("k", limit, 0, algorithm="leaky_bucket")).remaining
        for breaks in (False, True):
            task = asyncio.create_task(limiter.acquire("k", limit, algorithm="leaky_bucket"))
            await settle_down()
            store.breaks = breaks
            task.cancel()
            await settle_down()
            left = (await limiter.peek("k", limit, 0, algorithm="leaky_bucket")).remaining
            assert left == (before if not breaks else before - 1)  # type: ignore[operator] # a number
        assert "give-back for a cancelled waiter failed, its units stay counted: gone" in caplog.text

    run(scenario())


def test_a_waiter_that_is_cancelled_while_the_store_breaks_is_only_cancelled() -> None:
    """An error that arrives for a waiter that is gone is of no interest any more."""

    async def scenario() -> None:
        store = Counting()
        limiter = store.limiter(FakeClock())
        store.gate.clear()
        task = asyncio.create_task(limiter.acquire("k", "1/hour"))
        await settle_down()
        task.cancel()
        await settle_down()
        store.error = StoreError("gone", transient=True)
        store.gate.set()
        await settle_down()
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())


def test_an_overloaded_store_is_tried_again() -> None:
    """A process with too much in flight lets its waiters wait; one that has no time for that gets the error."""

    async def scenario() -> None:
        clock, store = FakeClock(), Counting()
        limiter = store.limiter(clock)
        store.error = Overloaded(retry_after=2.0)
        task = asyncio.create_task(limiter.acquire("k", "1/hour", timeout=3))
        await settle_down()
        with pytest.raises(Overloaded):
            await limiter.acquire("other", "1/hour", timeout=1)
        store.error = None
        clock.advance(seconds=2)
        await settle_down()
        assert (await task).allowed

    run(scenario())


def test_the_number_of_waiters_is_bounded() -> None:
    """More waiters than `max_waiters` are refused with a sentence, and the others are not disturbed."""

    async def scenario() -> None:
        clock, served = FakeClock(), list[int]()
        async with Limiter.open(clock=clock, max_waiters=2) as limiter:
            await limiter.hit("k", "1/second", algorithm=FIXED)
            tasks = in_order(limiter, served, 2, "k", "1/second", algorithm=FIXED)
            await settle_down()
            with pytest.raises(Overloaded, match="2 callers of this limiter are waiting already; start fewer"):
                await limiter.acquire("other", "1/second")
            for _ in range(2):
                clock.advance(seconds=1)
                await settle_down()
            await asyncio.gather(*tasks)
            assert served == [0, 1]

    run(scenario())


@pytest.mark.parametrize("number", [0, -1, True, "9", 1.5, 10**10])
def test_a_wrong_number_of_waiters_is_refused(number: Any) -> None:  # noqa: ANN401 (whatever people give)
    """`max_waiters` is a whole number above 0."""
    with pytest.raises(InvalidSettings, match="max_waiters is a whole number from 1"):
        Limiter.open(max_waiters=number)


def test_a_closed_limiter_admits_no_more_waiters() -> None:
    """Those who wait when a limiter is closed get a `StoreError`, and so do those who come later."""

    async def scenario() -> None:
        limiter = Limiter.open(clock=FakeClock())
        await limiter.hit("k", "1/hour")
        tasks = [asyncio.create_task(limiter.acquire("k", "1/hour")) for _ in range(3)]
        await settle_down()
        await limiter.close()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreError] * 3
        with pytest.raises(StoreError, match="the limiter was closed"):
            await limiter.acquire("k", "1/hour")

    run(scenario())


def test_requests_wait_for_all_their_rules() -> None:
    """A request waits until every rule admits it, slots included, and its slots are freed at the end of the block."""

    async def scenario() -> None:
        clock = FakeClock()
        rules = [
            {"name": "rate", "limits": "2/minute", "algorithm": FIXED},
            {"name": "slots", "layer": "s", "limits": "1 concurrent ttl 10m", "algorithm": "concurrency"},
        ]
        async with Limiter.open(rules=rules, clock=clock) as limiter:
            async with limiter.acquiring(Request(user="u")) as verdict:
                assert verdict.allowed
                task = asyncio.create_task(limiter.acquire(Request(user="u"), timeout=30))
                await settle_down()
                assert not task.done()
            await settle_down()
            held = await task
            late = asyncio.create_task(limiter.acquire(Request(user="u")))
            await settle_down()
            with pytest.raises(AcquireTimeout):
                await limiter.acquire(Request(user="u"), timeout=59)
            clock.advance(seconds=60)
            await settle_down()
            assert not late.done()  # the slot
            await limiter.refund(held)
            await settle_down()
            assert (await late).allowed

    run(scenario())


def test_a_blocked_request_waits_for_the_end_of_the_block_or_is_refused() -> None:
    """A block rule with a time to come back is waited for; one without refuses at once. An exemption admits at once."""

    async def scenario() -> None:
        clock = FakeClock()
        rules: list[dict[str, Any]] = [
            {"name": "later", "action": "block", "match": {"methods": ["PUT"]}, "response": {"retry_after": "30s"}},
            {"name": "never", "action": "block", "match": {"methods": ["GET"]}},
        ]
        async with Limiter.open(rules=rules, clock=clock) as limiter:
            assert (await limiter.acquire(Request(method="POST"))).allowed
            with pytest.raises(Refused):
                await limiter.acquire(Request(method="GET"))
            with pytest.raises(AcquireTimeout):
                await limiter.acquire(Request(method="PUT"), timeout=10)

    run(scenario())


def test_a_context_manager_and_a_decorator() -> None:
    """`acquiring` waits at the beginning of a block or call, and key and cost may be functions of the arguments."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            block = limiter.acquiring("k", "3/minute", 2, timeout=0, algorithm=FIXED)
            async with block as verdict:
                assert verdict.remaining == 1
                with pytest.raises(InvalidRequest, match=r"acquiring\(\) block is running"):
                    await block.__aenter__()
            with pytest.raises(AcquireTimeout):
                async with block:
                    pass
            clock.advance(seconds=60)
            async with block:
                pass

            @limiter.acquiring(lambda user, *, size: f"user:{user}", "10/minute", lambda user, *, size: size, timeout=0)  # noqa: ARG005 (as the function's)
            async def send(user: str, *, size: int) -> str:
                """Send."""
                return f"{user} {size}"

            assert send.__name__ == "send"
            assert await send("a", size=7) == "a 7"
            assert await send("b", size=10) == "b 10"
            with pytest.raises(AcquireTimeout):
                await send("a", size=4)
            assert (await limiter.peek("user:a", "10/minute", 0)).remaining == 3

            @limiter.acquiring("slots", "1 concurrent", timeout=0)
            async def hold() -> None:
                with pytest.raises(AcquireTimeout):
                    await limiter.acquire("slots", "1 concurrent", timeout=0)

            await hold()
            await hold()

            @limiter.acquiring(lambda user: Request(user=user))
            async def by_rules(user: str) -> str:
                return user

            assert await by_rules("u") == "u"

    run(scenario())


def test_a_decorator_on_the_wrong_function_shows_the_right_one() -> None:
    """The asynchronous limiter decorates coroutine functions only, and says what to use for others."""
    limiter = Limiter.open()
    with pytest.raises(TypeError, match=r"<lambda> is not a coroutine function; .*headgate\.sync\.Limiter"):
        limiter.acquiring("k", "1/hour")(lambda: settle_down())  # noqa: PLW0108 (on purpose)


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (("k",), InvalidRequest, "a key needs a limit"),
        ((Request(), "1/s"), InvalidRequest, "a limit goes with a key"),
        (("k", "1/x"), InvalidLimit, "is not a unit of time"),
        (("k", "1/s", -1), InvalidRequest, "a cost is between 0"),
        (("k", "3 concurrent", 2), InvalidRequest, "one slot is acquired at a time"),
        ((7, "1/s"), InvalidRequest, "acquire needs a key or a headgate.Request, not 7"),
        ((lambda: "k", "1/s"), InvalidRequest, "only for decorators"),
        (("k", "1/s", lambda: 1), InvalidRequest, "only for decorators"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: type[Exception], sentence: str) -> None:  # noqa: ANN401 (whatever people give)
    """What cannot be acquired is refused with a sentence, before anything is counted."""

    async def scenario() -> None:
        async with Limiter.open() as limiter:
            with pytest.raises(error, match=sentence):
                await limiter.acquire(*arguments)

    run(scenario())


@pytest.mark.parametrize("timeout", [-1, True, "5", float("nan"), float("inf")])
def test_a_wrong_timeout_is_refused(timeout: Any) -> None:  # noqa: ANN401 (whatever people give)
    """A timeout is a number of seconds, or None."""
    with pytest.raises(InvalidRequest, match="a timeout is a number of seconds, 0 or more, or None"):
        Limiter.open().acquiring("k", "1/s", timeout=timeout)


def test_nothing_is_waited_for_where_nothing_limits() -> None:
    """An unlimited key, a cost of 0 and a request without rules are admitted at once."""

    async def scenario() -> None:
        async with Limiter.open(clock=FakeClock()) as limiter:
            await limiter.hit("k", "1/hour")
            assert (await limiter.acquire("k", "unlimited")).allowed
            assert (await limiter.acquire("k", "1/hour", 0)).allowed
            assert (await limiter.acquire(Request())).allowed

    run(scenario())


def test_a_loop_runs_at_the_limits_rate() -> None:
    """`iterate` gives the items of any iterable in order, each when the limit admits it; loops may share a key."""

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def scenario() -> None:
        clock, seen = FakeClock(), list[tuple[int, float]]()
        async with Limiter.open(clock=clock) as limiter:

            async def loop(**named: Any) -> None:  # noqa: ANN401 (what iterate takes)
                async for number in limiter.iterate([5, 6, 7], "1/second", algorithm=FIXED, **named):
                    seen.append((number, seconds(clock)))

            async def drive(*loops: Coroutine[Any, Any, None]) -> None:
                tasks = [asyncio.create_task(each) for each in loops]
                while not all(task.done() for task in tasks):
                    await settle_down()
                    clock.advance(seconds=1)
                await asyncio.gather(*tasks)

            await drive(loop())
            assert [number for number, _ in seen] == [5, 6, 7]
            assert seen[2][1] - seen[0][1] == 2
            seen.clear()
            await drive(loop(key="shared"), loop(key="shared"))
            assert sorted(number for number, _ in seen) == [5, 5, 6, 6, 7, 7]
            assert seen[5][1] - seen[0][1] == 5
            assert [number async for number in limiter.iterate(numbers(), "9/second", cost=lambda n: n)] == [0, 1, 2]
            async for _ in limiter.iterate([1, 2], "1 concurrent", key="s"):
                with pytest.raises(Refused):
                    await limiter.slot("s", "1 concurrent").__aenter__()
            with pytest.raises(InvalidLimit):
                limiter.iterate([], "nonsense")
            with pytest.raises(InvalidRequest):
                limiter.iterate([], "1/s", cost=-1)

    run(scenario())


def test_time_that_really_passes_is_waited_for() -> None:
    """On the real clock a waiter sleeps and is admitted, and a timeout behind others ends."""

    async def scenario() -> None:
        async with Limiter.open() as limiter:
            served = list[int]()
            await asyncio.gather(*in_order(limiter, served, 6, "k", "200/second burst 1", algorithm="token_bucket"))
            assert served == [0, 1, 2, 3, 4, 5]
            async with limiter.slot("s", "1 concurrent"):
                first = asyncio.create_task(limiter.acquire("s", "1 concurrent"))
                await settle_down()
                with pytest.raises(AcquireTimeout):
                    await limiter.acquire("s", "1 concurrent", timeout=0.001)
            await first

    run(scenario())


def test_a_clock_moved_by_another_thread_wakes_waiters() -> None:
    """A test may move its clock in a thread of its own."""

    async def scenario() -> None:
        clock = FakeClock()
        async with Limiter.open(clock=clock) as limiter:
            await limiter.hit("k", "1/hour", algorithm=FIXED)
            task = asyncio.create_task(limiter.acquire("k", "1/hour", algorithm=FIXED))
            await settle_down()
            await asyncio.to_thread(clock.advance, 3600)
            assert (await task).allowed

    run(scenario())


class Counting:
    """A store that makes its callers wait, as one on a server does, and counts how often it is called."""

    def __init__(self) -> None:
        self.takes = 0
        self.last: tuple[Hit, ...] = ()
        self.error: Exception | None = None
        self.breaks = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.inner: Any = None

    def limiter(self, clock: FakeClock) -> Limiter:
        made = Limiter.open(clock=clock)
        self.inner = made.store
        return Limiter(self, made.snapshots, made.bare_keys, queues=wiring.wait_queues(clock))  # type: ignore[arg-type] # has all that is called

    async def take(self, hits: Any) -> list[Decision]:  # noqa: ANN401 (a sequence of hits)
        self.takes += 1
        self.last = tuple(hits)
        decisions: list[Decision] = await self.inner.take(hits) if self.error is None else []
        await asyncio.sleep(0)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return decisions

    async def peek(self, hits: Any) -> list[Decision]:  # noqa: ANN401 (a sequence of hits)
        found: list[Decision] = await self.inner.peek(hits)
        return found

    async def give_back(self, receipts: Any) -> None:  # noqa: ANN401 (a sequence of receipts)
        await asyncio.sleep(0)
        if self.breaks:
            msg = "gone"
            raise StoreError(msg, transient=True)
        await self.inner.give_back(receipts)

    async def close(self) -> None:
        await self.inner.close()
