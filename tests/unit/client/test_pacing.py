"""Calling a limited API: full use of the limit with almost no refusals, in virtual time."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.limited_api import LimitedApi, nothing, only_x
from tests.unit.client.virtual_time import clocks, run

from headgate.client import AsyncRateLimitTransport, Pacers, Reading, RetryPolicy, Standing
from headgate.client.dialects import MAX_SPAN
from headgate.client.pacer import Pacer
from headgate.core.units import SECOND
from headgate.testing import FakeClock

_PATIENT = RetryPolicy(max_wait=3_600, attempts=50, circuit_after=1_000)


def _calls(api: LimitedApi, calls: int, tasks: int, policy: RetryPolicy = _PATIENT) -> float:
    """Run tasks that make calls until all are answered; returns the seconds this takes."""
    pacers = Pacers(policy, clocks=clocks(api.clock), chance=lambda: 0.5)

    async def work(client: httpx.AsyncClient, numbers: list[int]) -> None:
        while numbers:
            numbers.pop()
            assert (await client.get("http://api.test/things")).status_code == 200

    async def main() -> float:
        began = api.clock()
        async with httpx.AsyncClient(transport=AsyncRateLimitTransport(api, pacers)) as client:
            numbers = list(range(calls))
            await asyncio.gather(*[work(client, numbers) for _ in range(tasks)])
        return (api.clock() - began) / 1_000_000

    return run(main(), api.clock)


@pytest.mark.parametrize("algorithm", ["sliding_window_log", "sliding_window_counter", "fixed_window", "token_bucket"])
def test_tasks_share_a_limit_and_use_all_of_it(algorithm: str) -> None:
    """20 tasks make 1,000 calls under a limit of 50 a second in at most 22 s, with at most 2 % refused."""
    api = LimitedApi(FakeClock(), "50/second", algorithm)
    seconds = _calls(api, 1_000, 20)
    assert seconds <= 22
    assert api.refused <= 20


def test_a_naive_client_is_refused_most_of_the_time() -> None:
    """Without pacing, with a fixed short wait after refusals, most calls are refused."""
    api = LimitedApi(FakeClock(), "50/second")

    async def work(client: httpx.AsyncClient, numbers: list[int]) -> None:
        while numbers:
            numbers.pop()
            while (await client.get("http://api.test/things")).status_code != 200:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.05)

    async def main() -> None:
        async with httpx.AsyncClient(transport=api) as client:
            numbers = list(range(200))
            await asyncio.gather(*[work(client, numbers) for _ in range(20)])

    run(main(), api.clock)
    assert api.refused > 200


def test_an_api_that_does_not_tell_its_window_is_paced_by_what_is_left() -> None:
    """With remaining and reset only, calls are spread until the reset, and few are refused."""
    api = LimitedApi(FakeClock(), "100/minute", "fixed_window", only_x)
    seconds = _calls(api, 300, 10)
    assert api.refused <= 6
    assert seconds <= 181


def test_an_api_that_says_nothing_is_paced_by_guesses() -> None:
    """If refusals are all that is known, the pace is found by trying, and far fewer calls are refused."""
    api = LimitedApi(FakeClock(), "50/second", headers=nothing)
    seconds = _calls(api, 500, 20)
    assert api.refused < 150
    assert seconds <= 40


def test_a_long_window_may_be_used_at_will_while_plenty_is_left() -> None:
    """Ten calls of 5,000 an hour do not wait for each other."""
    api = LimitedApi(FakeClock(), "5000/hour")
    assert _calls(api, 10, 1) < 0.2


def test_a_long_window_is_not_emptied_early() -> None:
    """After the first half of an hour's limit, the rest is spread, and no call is refused."""
    api = LimitedApi(FakeClock(), "1000/hour", "fixed_window")
    seconds = _calls(api, 990, 20)
    assert api.refused == 0
    assert seconds <= 3_600


def test_other_callers_of_the_same_limit_are_noticed() -> None:
    """Two independent programs share a limit by the headers that each receives."""
    api = LimitedApi(FakeClock(), "50/second", "fixed_window")

    def work() -> list[Pacers]:
        return [Pacers(_PATIENT, clocks=clocks(api.clock), chance=lambda: 0.5) for _ in range(2)]

    async def one(pacers: Pacers) -> None:
        async with httpx.AsyncClient(transport=AsyncRateLimitTransport(api, pacers)) as client:
            for _ in range(150):
                assert (await client.get("http://api.test/things")).status_code == 200

    async def main() -> None:
        await asyncio.gather(*map(one, work()))

    run(main(), api.clock)
    assert api.refused <= 15


_numbers = st.none() | st.integers(0, 10**15 - 1) | st.integers(0, 3)
_spans = st.none() | st.integers(0, MAX_SPAN)
_standings = st.builds(
    Standing,
    st.sampled_from(["a", "b"]),
    limit=_numbers,
    remaining=st.integers(0, 10**15 - 1) | st.integers(0, 3),
    reset=_spans,
    window=st.none() | st.integers(1, MAX_SPAN),
    counts_requests=st.booleans(),
)
_readings = st.builds(Reading, _spans, st.lists(_standings, max_size=2).map(tuple))


@pytest.mark.parametrize("waits", [(30, 1), (1, 30), (30, 1, 1), (5, 30, 2)])
def test_a_later_shorter_refusal_does_not_shorten_the_wait(waits: tuple[int, ...]) -> None:
    """Calls sent together are refused with different waits, in any order: the longest holds."""
    pacer, now = Pacer(RetryPolicy(circuit_after=1_000)), 1
    first, _ = pacer.ask(now)
    pacer.answered(first, refused=False, reading=Reading(), now=now, chance=0.0)
    numbers = [pacer.ask(now)[0] for _ in waits]
    assert all(numbers)
    for number, seconds in zip(numbers, waits, strict=True):
        pacer.answered(number, refused=True, reading=Reading(seconds * SECOND), now=now, chance=0.0)
        now += 1_000
    asked, wait = pacer.ask(now)
    assert not asked
    assert wait >= (max(waits) - 1) * SECOND
    assert not pacer.ask(now + (max(waits) - 1) * SECOND)[0]


@given(st.lists(st.tuples(_readings, st.booleans()), max_size=20), st.floats(0, 1))
def test_whatever_servers_say_a_wait_ends_when_it_was_said_to_end(
    answers: list[tuple[Reading, bool]], chance: float
) -> None:
    """No wait exceeds the maximum, and a client that has waited may call."""
    pacer, now = Pacer(RetryPolicy(circuit_after=1_000)), 1
    for reading, refused in answers:
        number, wait = pacer.ask(now)
        assert 0 <= wait <= 2 * MAX_SPAN
        if not number:
            now += wait
            number, wait = pacer.ask(now)
        assert number
        pacer.answered(number, refused=refused, reading=reading, now=now, chance=chance)
