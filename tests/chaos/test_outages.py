"""Servers that freeze, die, go silent, slow or send nonsense under load: no check waits, none raises an exception."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import uvloop
from tests.chaos.load import queued, share
from tests.chaos.outage import DEADLINE, LIMIT, judge, outage
from tests.support.fault_proxy import ProxyProcess
from tests.support.valkey import Server, free_port

from headgate.core.decision import Source
from headgate.sync import Limiter as SyncLimiter
from headgate.testing import ErrorLine, Fault, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.figures import Figures

_SHORT: Final = 5.0
_LONG: Final = 60.0
_CROWD: Final = 128
"""So many keep a process busy all the time, and make a turn of its event loop a few milliseconds long."""
_LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.mark.parametrize("loop", _LOOPS)
def test_a_server_that_freezes_for_a_minute(
    valkey: Server, figures: Figures, say: Callable[[str], None], loop: str
) -> None:
    """A frozen server costs a few callers the deadline and the others nothing, and is asked again when it thaws."""
    say(f"one minute without the server, on {loop}")
    with asyncio.Runner(loop_factory=_LOOPS[loop]) as runner:
        seen = runner.run(outage(valkey.url, _LONG, valkey.freeze, valkey.thaw))
    judge(f"frozen for 60 s, {loop}", seen, figures, is_long=True)


def test_a_frozen_server_that_takes_no_more_connections(servers_folder: Path, figures: Figures) -> None:
    """A frozen server whose queue of connections is full, as after a minute with a fleet, is found again as soon."""
    server = Server(servers_folder / "narrow", free_port(), options=("--tcp-backlog", "1"))
    try:
        for number in range(4):  # each time it thaws at another moment between two looks
            seen = asyncio.run(outage(server.url, _SHORT + number / 4, server.freeze, server.thaw))
            judge(f"frozen, connections queue full, {number + 1}", seen, figures)
    finally:
        server.kill()


def test_a_server_that_is_killed_and_started_again(valkey: Server, figures: Figures) -> None:
    """A server that dies and restarts at the same address is used again without intervention."""
    seen = asyncio.run(outage(valkey.url, _SHORT, valkey.kill, valkey.start))
    judge("killed and restarted", seen, figures)


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.STALLED, Fault.REFUSED, Fault.CUT, Fault.RESET, Fault.GARBAGE])
def test_a_server_that_misbehaves(valkey: Server, figures: Figures, fault: Fault) -> None:
    """A server that never answers, cuts its answers, resets or talks nonsense opens the circuit until it recovers."""
    with FaultProxy(path=valkey.socket) as proxy:
        seen = asyncio.run(outage(proxy.url, _SHORT, lambda: proxy.play(fault), proxy.heal))
    judge(f"plays {fault.value}", seen, figures)


def test_a_server_that_answers_too_late(valkey: Server, figures: Figures) -> None:
    """A server whose answers come after the deadline counts as unavailable."""
    with FaultProxy(path=valkey.socket) as proxy:
        seen = asyncio.run(outage(proxy.url, _SHORT, lambda: proxy.play(Fault.SLOW, seconds=0.2), proxy.heal))
    judge("answers after 200 ms", seen, figures)


@pytest.mark.parametrize("line", ErrorLine, ids=lambda line: line.name)
def test_a_server_that_says_it_cannot(valkey: Server, figures: Figures, line: ErrorLine) -> None:
    """A server that is in no state to count counts as unavailable; the log says why, and when it has recovered."""
    with FaultProxy(path=valkey.socket) as proxy:
        seen = asyncio.run(outage(proxy.url, _SHORT, lambda: proxy.says(line), proxy.heal))
    judge(f"says {line.name}", seen, figures)
    assert line.name in seen.why


@pytest.mark.parametrize(
    ("policy", "source"),
    [("allow", Source.DEGRADED_ALLOW), ("deny", Source.DEGRADED_DENY), ("local", Source.DEGRADED_LOCAL)],
)
def test_what_holds_meanwhile(valkey: Server, figures: Figures, policy: str, source: Source) -> None:
    """While the server is unavailable, `on_store_error` alone decides, and every such verdict says so."""
    seen = asyncio.run(outage(f"{valkey.url}?on_store_error={policy}", 2.0, valkey.freeze, valkey.thaw))
    judge(f"frozen, on_store_error={policy}", seen, figures)
    degraded = [sample for sample in seen.during if sample.source is not Source.STORE]
    assert {sample.source for sample in degraded} == {source}
    assert {sample.allowed for sample in degraded} == {policy != "deny"}


@pytest.mark.parametrize("how", ["frozen", "killed", "slow", "cut"])
def test_an_outage_at_full_load(valkey: Server, figures: Figures, how: str) -> None:
    """A process that is busy to its bound tells an outage from its own crowd as soon as an idle one does."""
    with ProxyProcess(valkey.socket) as proxy:
        heal = partial(proxy.play, Fault.NONE)
        outages: dict[str, tuple[Callable[[], None], Callable[[], None], str]] = {
            "frozen": (valkey.freeze, valkey.thaw, valkey.url),
            "killed": (valkey.kill, valkey.start, valkey.url),
            "slow": (partial(proxy.play, Fault.SLOW, seconds=0.2), heal, proxy.url),
            "cut": (partial(proxy.play, Fault.CUT), heal, proxy.url),
        }
        begin, end, url = outages[how]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seen = runner.run(outage(url, _SHORT, begin, end, rate=200, crowd=_CROWD))
    judge(f"{how}, beside {_CROWD} that ask all the time", seen, figures)


def test_threads(valkey: Server, figures: Figures) -> None:
    """Of 8 threads on one synchronous limiter none waits longer than the deadline while the server is frozen."""
    case = "frozen, 8 threads, headgate.sync"
    with SyncLimiter.open(valkey.url) as limiter, ThreadPoolExecutor(8) as threads:
        limiter.hit("first", LIMIT)
        (background,) = [thread.native_id for thread in threading.enumerate() if thread.name == "headgate"]

        def work(number: int) -> list[tuple[float, float, Source]]:
            seen = []
            while time.perf_counter() < ends:
                asked = time.perf_counter() - queued() - queued(background)
                verdict = limiter.hit(f"k{number}", LIMIT)
                wait = time.perf_counter() - queued() - queued(background) - asked
                seen.append((time.perf_counter() - wait, wait, verdict.source))
                time.sleep(0.01)
            return seen

        began = time.perf_counter()
        ends = began + 1 + _SHORT + 3
        working = [threads.submit(work, number) for number in range(8)]
        time.sleep(1)
        valkey.freeze()
        time.sleep(_SHORT)
        valkey.thaw()
        thawed = time.perf_counter()
        samples = [sample for each in working for sample in each.result()]
    during = [wait for asked, wait, _ in samples if thawed - _SHORT <= asked < thawed]
    back = min(asked for asked, _, source in samples if asked > thawed and source is Source.STORE)
    figures.note(case, "checks", len(during), "")
    figures.check(case, "p99.9 of waits, machine aside", 1000 * share(during, 0.999), "ms", 1000 * DEADLINE + 25)
    figures.check(case, "enforcing again after", back - thawed, "s", 2)
