"""Which refused calls are sent again, and when."""

from __future__ import annotations

import asyncio
import importlib
import io
import itertools
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.virtual_time import clocks, run

from headgate import client as sdk
from headgate.client import (
    IDEMPOTENT,
    AsyncRateLimitTransport,
    CircuitOpen,
    Pacers,
    RateLimitAdapter,
    RateLimitTransport,
    RetryPolicy,
    WaitTooLong,
)
from headgate.client.retries import State
from headgate.errors import InvalidSettings
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

Answer = tuple[int, dict[str, str]]
OK: Answer = (200, {})
LATER: Answer = (429, {"Retry-After": "2"})


class Scripted(httpx.BaseTransport):
    """Gives its answers one after the other, and the last one forever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The next answer."""
        self.requests.append(request.read())
        status, headers = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return httpx.Response(status, headers=headers)


class Sleeper:
    """A clock, and a sleep function that moves it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)


@pytest.fixture
def sleeper() -> Sleeper:
    """Time that passes only in sleep."""
    return Sleeper()


def _client(script: Scripted, sleeper: Sleeper, policy: RetryPolicy | None = None) -> httpx.Client:
    pacers = Pacers(policy, clocks=clocks(sleeper.clock), chance=lambda: 1.0)
    return httpx.Client(transport=RateLimitTransport(script, pacers, sleep=sleeper))


def test_a_refused_call_is_sent_again_when_the_server_says(sleeper: Sleeper) -> None:
    """After a 429 with Retry-After the call waits that long and a little more, and is sent again."""
    script = Scripted(LATER, OK)
    with _client(script, sleeper) as client:
        assert client.get("http://api.test/").status_code == 200
    assert sleeper.slept == [2.1]
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        ((429, {}), True),
        ((503, {}), True),
        ((403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}), True),
        ((403, {"Retry-After": "1"}), True),
        ((403, {}), False),
        ((403, {"X-RateLimit-Remaining": "12"}), False),
        ((500, {}), False),
        ((404, {"Retry-After": "1"}), False),
    ],
)
def test_which_answers_are_refusals(answer: Answer, *, is_refusal: bool, sleeper: Sleeper) -> None:
    """429 and 503 are refusals, and 403 with rate-limit headers; all other answers go to the program."""
    script = Scripted(answer, OK)
    with _client(script, sleeper) as client:
        assert (client.get("http://api.test/").status_code == 200) is is_refusal


def test_without_a_word_from_the_server_the_wait_doubles(sleeper: Sleeper) -> None:
    """Back-off is exponential: at most 0.5, 1, 2 and 4 s."""
    script = Scripted((429, {}))
    with _client(script, sleeper) as client:
        assert client.get("http://api.test/").status_code == 429
    assert sleeper.slept == [0.5, 1.0, 2.0, 4.0]
    assert len(script.requests) == 5


@given(row=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_back_off_has_full_jitter_and_a_bound(row: int, chance: float) -> None:
    """A wait is random between 0 and a bound that doubles, up to the longest."""
    policy = RetryPolicy()
    assert 0 <= policy.backoff(row, chance) <= min(60.0, 0.5 * 2.0 ** min(row - 1, 100)) * 1_000_000


@pytest.mark.parametrize("method", sorted({*IDEMPOTENT, "POST", "PATCH"}))
def test_only_what_is_safe_is_sent_again(method: str, sleeper: Sleeper) -> None:
    """Methods that are not idempotent are sent once, and the refusal goes to the program."""
    script = Scripted(LATER, OK)
    with _client(script, sleeper) as client:
        status = client.request(method, "http://api.test/", content=b"body").status_code
    assert status == (200 if method in IDEMPOTENT else 429)
    assert set(script.requests) == {b"body"}


def test_other_methods_are_sent_again_where_one_says_so(sleeper: Sleeper) -> None:
    """A policy may add POST."""
    policy = RetryPolicy(methods=IDEMPOTENT | {"POST"})
    with _client(Scripted(LATER, OK), sleeper, policy) as client:
        assert client.post("http://api.test/", json={"a": 1}).status_code == 200


def test_a_body_that_is_gone_is_not_sent_again(sleeper: Sleeper) -> None:
    """A body from a generator cannot be sent twice."""

    def body() -> Iterator[bytes]:
        yield b"once"

    script = Scripted(LATER, OK)
    with _client(script, sleeper) as client:
        assert client.put("http://api.test/", content=body()).status_code == 429
    assert script.requests == [b"once"]


def test_a_wait_that_is_too_long_does_not_begin(sleeper: Sleeper) -> None:
    """A wait beyond max_wait does not begin: the refusal goes to the program, and later calls are not sent."""
    script = Scripted((429, {"Retry-After": "3600"}))
    with _client(script, sleeper) as client:
        assert client.get("http://api.test/").status_code == 429
        with pytest.raises(WaitTooLong) as refused:
            client.get("http://api.test/")
    assert refused.value.seconds == pytest.approx(3600.1)
    assert sleeper.slept == []
    assert len(script.requests) == 1


def test_hosts_have_budgets_of_their_own(sleeper: Sleeper) -> None:
    """A refusal by one host does not delay calls to another."""
    script = Scripted((429, {"Retry-After": "3600"}), OK)
    with _client(script, sleeper) as client:
        assert client.get("http://one.test/").status_code == 429
        assert client.get("http://two.test/").status_code == 200


def test_budgets_go_by_any_key(sleeper: Sleeper) -> None:
    """With a key function, calls share a budget by any property of the call."""
    pacers = Pacers(clocks=clocks(sleeper.clock), key=lambda _url, headers: headers["x-api-key"])
    script = Scripted((429, {"Retry-After": "3600"}), OK)
    with httpx.Client(transport=RateLimitTransport(script, pacers, sleep=sleeper)) as client:
        assert client.get("http://api.test/", headers={"X-API-Key": "a"}).status_code == 429
        assert client.get("http://api.test/", headers={"X-API-Key": "b"}).status_code == 200
        with pytest.raises(WaitTooLong):
            client.get("http://other.test/", headers={"X-API-Key": "a"})


def test_the_circuit_opens_after_refusals_in_a_row_and_closes_again(sleeper: Sleeper) -> None:
    """After five refusals nothing is sent for 30 s; then one call is the trial, and its answer decides."""
    script = Scripted((429, {}))
    with _client(script, sleeper) as client:
        assert client.get("http://api.test/").status_code == 429
        with pytest.raises(CircuitOpen) as refused:
            client.get("http://api.test/")
        assert len(script.requests) == 5
        sleeper.clock.advance(refused.value.seconds)
        assert client.get("http://api.test/").status_code == 429  # the trial: refused, and the rest is twice as long
        with pytest.raises(CircuitOpen) as refused:
            client.get("http://api.test/")
        assert refused.value.seconds == pytest.approx(60, abs=10)
        sleeper.clock.advance(refused.value.seconds)
        script.answers = [OK]
        assert client.get("http://api.test/").status_code == 200
        assert client.get("http://api.test/").status_code == 200


def test_calls_that_are_refused_together_count_once() -> None:
    """Twenty calls that were sent before the first refusal do not open the circuit."""
    pacers = Pacers()
    pacer = pacers.call("GET", "http://api.test/", {}, has_replayable_body=True).pacer
    pacer.answered(pacer.ask(1).number, refused=False, reading=sdk.Reading(), now=1, chance=0.5)
    numbers = [pacer.ask(1).number for _ in range(20)]
    for number in numbers:
        pacer.answered(number, refused=True, reading=sdk.Reading(), now=2, chance=0.5)
    assert pacer.state is State.CLOSED


def test_a_trial_that_breaks_off_is_followed_by_another(sleeper: Sleeper) -> None:
    """If the trial call fails without an answer, the next call is the trial."""
    pacers = Pacers(RetryPolicy(circuit_after=1), clocks=clocks(sleeper.clock))
    pacer = pacers.call("GET", "http://api.test/", {}, has_replayable_body=True).pacer
    pacer.answered(pacer.ask(1).number, refused=True, reading=sdk.Reading(), now=2, chance=0.0)
    assert pacer.state is State.OPEN
    later = 10**9
    assert pacer.ask(later).number
    with pytest.raises(CircuitOpen):
        pacer.ask(later + 10**6)
    pacer.broken_off()
    assert pacer.ask(later + 10**6).number


def test_the_first_call_goes_alone() -> None:
    """Of many calls to an unknown API one is sent first, and the others learn from its answer."""
    clock = FakeClock()
    requests: list[int] = []

    async def answer(_request: httpx.Request) -> httpx.Response:
        requests.append(clock())
        await asyncio.sleep(0.3)
        return httpx.Response(200, headers={"RateLimit-Policy": '"a";q=10;w=1', "RateLimit": '"a";r=9;t=1'})

    async def main() -> None:
        transport = AsyncRateLimitTransport(httpx.MockTransport(answer), Pacers(clocks=clocks(clock)))
        async with httpx.AsyncClient(transport=transport) as client:
            await asyncio.gather(*[client.get("http://api.test/") for _ in range(5)])

    run(main(), clock)
    assert requests[1] - requests[0] >= 300_000
    assert all(later - earlier >= 100_000 for earlier, later in itertools.pairwise(requests))


def test_who_may_not_wait_does_not_wait_for_the_first_call() -> None:
    """With max_wait 0 every call is sent at once."""
    pacer = Pacers(RetryPolicy(max_wait=0)).call("GET", "http://api.test/", {}, has_replayable_body=True).pacer
    assert [pacer.ask(1).number for _ in range(3)] == [1, 2, 3]


def test_cancelled_calls_leave_the_queue() -> None:
    """A task that is cancelled while it waits blocks no other task."""
    clock = FakeClock()
    pacers = Pacers(clocks=clocks(clock), chance=lambda: 1.0)

    async def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"RateLimit-Policy": '"a";q=1;w=5', "RateLimit": '"a";r=0;t=5'})

    async def main() -> float:
        transport = AsyncRateLimitTransport(httpx.MockTransport(answer), pacers)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://api.test/")
            waiting = [asyncio.create_task(client.get("http://api.test/")) for _ in range(3)]
            await asyncio.sleep(0.1)
            began = clock()
            waiting[0].cancel()
            waiting[1].cancel()
            assert (await waiting[2]).status_code == 200
            return (clock() - began) / 1_000_000

    assert run(main(), clock) < 12


def test_patience_ends_for_those_behind_others_too() -> None:
    """A call gives up after max_wait, even if it is still behind others in the queue."""
    clock = FakeClock()
    pacers = Pacers(RetryPolicy(max_wait=7), clocks=clocks(clock), chance=lambda: 1.0)

    async def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"RateLimit-Policy": '"a";q=1;w=5', "RateLimit": '"a";r=1;t=5'})

    async def main() -> list[object]:
        transport = AsyncRateLimitTransport(httpx.MockTransport(answer), pacers)
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("http://api.test/")
            return list(
                await asyncio.gather(*[client.get("http://api.test/") for _ in range(3)], return_exceptions=True)
            )

    first, *others = run(main(), clock)
    assert isinstance(first, httpx.Response)
    assert [type(other) for other in others] == [WaitTooLong, WaitTooLong]


def test_a_lost_connection_is_the_callers_business(sleeper: Sleeper) -> None:
    """A connection error is raised unchanged, and not retried."""
    requests = []

    def lost(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        msg = "gone"
        raise httpx.ConnectError(msg)

    pacers = Pacers(clocks=clocks(sleeper.clock))
    with (
        httpx.Client(transport=RateLimitTransport(httpx.MockTransport(lost), pacers)) as client,
        pytest.raises(httpx.ConnectError),
    ):
        client.get("http://api.test/")
    assert len(requests) == 1


def test_threads_share_a_budget(sleeper: Sleeper) -> None:
    """Threads with one client share one pace."""
    headers = {"RateLimit-Policy": '"a";q=10;w=1', "RateLimit": '"a";r=5;t=1'}
    script = Scripted((200, headers))
    with _client(script, sleeper) as client:
        client.get("http://api.test/")
        threads = [threading.Thread(target=client.get, args=("http://api.test/",)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(sleeper.slept) == pytest.approx(20 * 0.105, abs=0.11)


def test_requests_has_an_adapter(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A requests session with the adapter waits and retries."""
    answers = [LATER, OK]

    def send(_self: object, request: requests.PreparedRequest, *_a: object, **_o: object) -> requests.Response:
        response = requests.Response()
        response.request, response.raw = request, io.BytesIO()
        response.status_code, headers = answers.pop(0)
        response.headers.update(headers)
        return response

    monkeypatch.setattr("requests.adapters.HTTPAdapter.send", send)
    session = requests.Session()
    session.mount("http://", RateLimitAdapter(Pacers(clocks=clocks(sleeper.clock), chance=lambda: 1.0), sleep=sleeper))
    assert session.get("http://api.test/").status_code == 200
    assert sleeper.slept == [2.1]


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"max_wait": -1}, {"max_wait": "60"}, {"first_backoff": 0}])
def test_policies_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    """A policy with impossible numbers raises an error that names them."""
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        RetryPolicy(**wrong)  # type: ignore[arg-type] # wrong on purpose


def test_every_public_name_is_there() -> None:
    """Every name in __all__ can be imported, and no other."""
    module = importlib.import_module("headgate.client")
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = module.nothing_of_that_name
