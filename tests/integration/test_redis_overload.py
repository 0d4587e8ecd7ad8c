"""A crowd, a stalled loop or a stopped process is no outage: every check is answered by the server, exactly."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from headgate import Limiter, Overloaded, Request
from headgate.adapters.redis import store_at
from headgate.adapters.redis.send_queue import MAX_IN_FLIGHT
from headgate.core.decision import Hit, Source
from headgate.core.failure_policy import FailurePolicy, OnOverload
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.sync import Limiter as SyncLimiter
from headgate.testing import Fault, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.cluster import ClusterSetup
    from tests.support.valkey import Server

LIMIT = "100/day"
METER = Meter(Rate(100, 86_400_000_000), Algorithm.FIXED_WINDOW)
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    made: Callable[[], asyncio.AbstractEventLoop] = LOOPS[request.param]
    return made


@pytest.fixture
def burners() -> Iterator[None]:
    """Twice as many programs as there are cores, which do nothing but work."""
    work = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    running = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(4)]  # noqa: S603 (our own)
    yield
    for each in running:
        each.kill()
        each.wait()


def seen(verdicts: list[Any]) -> Counter[tuple[bool, Source]]:
    return Counter((verdict.allowed, verdict.source) for verdict in verdicts)


async def crowd(url: str, number: int) -> Counter[tuple[bool, Source]]:
    """So many checks on one key, all started together."""
    async with Limiter.open(url) as limiter:
        return seen(await asyncio.gather(*[limiter.hit("one key", LIMIT) for _ in range(number)]))


@pytest.mark.parametrize("number", [1_000, 10_000])
def test_checks_that_start_together(valkey: Server, loop: Callable[[], asyncio.AbstractEventLoop], number: int) -> None:
    """However many checks start together, with default settings, exactly the limit is admitted."""
    with asyncio.Runner(loop_factory=loop) as runner:
        answers = runner.run(crowd(valkey.url, number))
    assert sum(count for (allowed, _), count in answers.items() if allowed) == 100
    assert answers[True, Source.STORE] == 100


@pytest.mark.serial
@pytest.mark.usefixtures("burners")
def test_checks_on_a_busy_machine(valkey: Server) -> None:
    """With all cores busy with other work, from the first check on, exactly the limit is admitted."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers = runner.run(crowd(valkey.url, 5_000))
    assert sum(count for (allowed, _), count in answers.items() if allowed) == 100
    assert answers[True, Source.STORE] == 100


def test_an_event_loop_that_stalls(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that is held up for longer than the deadline, again and again, still counts every check on the server."""
    caplog.set_level(logging.WARNING)

    async def scenario() -> list[Any]:
        async with Limiter.open(valkey.url) as limiter:
            verdicts = []
            for number in range(10):
                asked = [asyncio.ensure_future(limiter.hit(f"stalled {number}", LIMIT)) for _ in range(50)]
                await asyncio.sleep(0)
                time.sleep(0.12)  # noqa: ASYNC251 (that is the stall)
                verdicts += await asyncio.gather(*asked)
            return verdicts

    assert seen(asyncio.run(scenario())) == {(True, Source.STORE): 500}
    assert caplog.messages == []


_STOPPED = """
import asyncio, sys
from headgate import Limiter
async def main():
    async with Limiter.open(sys.argv[1]) as limiter:
        sources = set()
        async def ask(number):
            for _ in range(400):
                sources.add((await limiter.hit(f"stopped {number}", "1000000/day")).source.value)
                await asyncio.sleep(0)
        await limiter.hit("first", "5/day")
        print("ready", flush=True)
        await asyncio.gather(*[ask(number) for number in range(50)])
        print(sorted(sources), flush=True)
asyncio.run(main())
"""


def test_a_process_that_is_stopped_and_continued(valkey: Server) -> None:
    """SIGSTOP, for longer than the deadline and at any moment, is no evidence against the server."""
    command = [sys.executable, "-c", _STOPPED, valkey.url]
    stop = "kill -STOP {0}; sleep 0.12; kill -CONT {0}; sleep 0.02"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(8):
            if process.poll() is None:
                subprocess.run(["/bin/sh", "-c", stop.format(process.pid)], check=False)  # noqa: S603 (our own)
        output, errors = process.communicate(timeout=60)
    assert output == "['store']\n"
    assert errors == ""


def test_threads_beside_a_thread_that_never_rests(valkey: Server) -> None:
    """Without `await`, a thread that keeps the interpreter busy makes others slow, and their server not unavailable."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            sum(range(10_000))

    busy = [threading.Thread(target=work) for _ in range(3)]
    with SyncLimiter.open(valkey.url) as limiter:
        limiter.hit("k", LIMIT)
        for thread in busy:
            thread.start()
        try:
            answers = seen([limiter.hit("k", LIMIT) for _ in range(150)])
        finally:
            stop.set()
    assert answers[True, Source.STORE] == 99
    assert not any(source.value.startswith("degraded") for _, source in answers)


def test_a_server_that_is_slow_but_replies(valkey: Server) -> None:
    """A queue behind a server that takes its time is overload: all of it is answered by the server."""
    with FaultProxy(path=valkey.socket) as proxy:
        proxy.play(Fault.SLOW, seconds=0.002, stall=0.025, one_in=20)
        answers = asyncio.run(crowd(proxy.url, 5_000))
    assert answers[True, Source.STORE] == 100
    assert sum(count for (allowed, _), count in answers.items() if allowed) == 100


def test_refunds_under_a_burst_are_not_lost(valkey: Server) -> None:
    """Commands other than checks wait for room as checks do, and all of them arrive."""

    async def scenario() -> int | None:
        async with Limiter.open(valkey.url) as limiter:
            verdicts = await asyncio.gather(*[limiter.hit("given back", "5000/day") for _ in range(5_000)])
            await asyncio.gather(*[limiter.refund(verdict) for verdict in verdicts])
            return (await limiter.peek("given back", "5000/day", cost=0)).remaining

    assert asyncio.run(scenario()) == 5_000


def rules(on_overload: str) -> dict[str, object]:
    return {"rules": [{"name": "r", "per": "user", "limits": LIMIT, "on_overload": on_overload}]}


def test_a_rule_that_does_not_wait(valkey: Server) -> None:
    """With `on_overload: deny` a check without room fails with `Overloaded`; it is neither admitted nor counted."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url, rules("deny")) as limiter:
            await limiter.check(Request(user="first"))
            asked = [limiter.check(Request(user=f"u{number}")) for number in range(2 * MAX_IN_FLIGHT)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            shed = [each for each in answers if isinstance(each, Overloaded)]
            assert 0 < len(shed) <= MAX_IN_FLIGHT
            assert "on_overload: deny" in str(shed[0])
            counted = [
                (await limiter.peek(Request(user=f"u{number}"), cost=0)).remaining
                for number, answer in enumerate(answers)
                if isinstance(answer, Overloaded)
            ]
            assert set(counted) == {100}

    asyncio.run(scenario())


def test_a_key_that_does_not_wait(valkey: Server) -> None:
    """`?on_overload=deny` holds for keys without a rule."""

    async def scenario() -> set[type]:
        async with Limiter.open(f"{valkey.url}?on_overload=deny") as limiter:
            await limiter.hit("first", LIMIT)
            asked = [limiter.hit(f"k{number}", LIMIT) for number in range(2 * MAX_IN_FLIGHT)]
            return {type(each) for each in await asyncio.gather(*asked, return_exceptions=True)}

    assert Overloaded in asyncio.run(scenario())


def test_what_is_shed_of_a_request_over_several_nodes_is_undone(cluster_setup: ClusterSetup) -> None:
    """If one part of a request finds no room, what the others have counted goes back."""

    async def scenario() -> None:
        store = store_at(cluster_setup.url)
        await store.connect()
        patient = [Hit(f"rl:{{u={number}}}:k", METER, 1) for number in range(20)]
        await asyncio.gather(*[store.take([hit]) for hit in patient])
        hasty = [hit._replace(failure_policy=FailurePolicy(on_overload=OnOverload.DENY)) for hit in patient]
        # So much on one node that it is full, and the request's other parts find room on theirs.
        full = [store.take([hasty[0]._replace(failure_policy=None)]) for _ in range(4 * MAX_IN_FLIGHT)]
        crowd = [asyncio.ensure_future(each) for each in full]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await store.take(hasty)
        await asyncio.gather(*crowd)
        for hit in patient[1:]:
            (decision,) = await store.peek([hit._replace(cost=0)])
            assert decision.remaining == 99
        await store.close()

    asyncio.run(scenario())


def test_a_user_that_may_not_run_what_a_script_needs(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    """`NOPERM` inside a script is an outage for the rules that need it: policy answers, and the log says so once."""
    caplog.set_level(logging.WARNING)
    valkey.ask("ACL", "SETUSER", "poor", "on", ">secret", "~*", "+@all", "-set")
    url = valkey.url.replace("unix://", "redis+unix://poor:secret@")

    async def scenario() -> list[Any]:
        async with Limiter.open(url, rules("wait")) as limiter:
            first = [await limiter.check(Request(user=f"u{number}")) for number in range(50)]
        async with Limiter.open(f"{url}?on_store_error=deny") as limiter:
            return [*first, await limiter.hit("k", LIMIT)]

    *allowed, denied = asyncio.run(scenario())
    valkey.ask("ACL", "DELUSER", "poor")
    assert {verdict.source for verdict in allowed} == {Source.DEGRADED_ALLOW}
    assert denied.source is Source.DEGRADED_DENY
    assert len(caplog.messages) == 2  # one for each of the two limiters
    assert all(line.startswith("permission denied: redis ") and "'set'" in line for line in caplog.messages)
