"""The synchronous limiter on a real server: threads, forks, signals, and the end of the interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headgate import Request, StoreError
from headgate.sync import Limiter

if TYPE_CHECKING:
    from tests.support.valkey import Server

THREADS = 8
PATIENCE = 30
PATIENT = "?deadline_ms=30000"
"""A busy machine is no outage."""


def waits(limiter: Limiter) -> bool:
    """Whether a thread waits for the server."""
    line = limiter._limiter.store.store.store._connection  # type: ignore[attr-defined] # looks inside
    return line is not None and bool(line._lock.locked())


def test_threads_together_get_exactly_the_limit(valkey: Server) -> None:
    """However many threads share a limiter on Redis, they are admitted exactly as often as the limit says."""
    with Limiter.open(valkey.url + PATIENT, rules=[{"name": "r", "limits": "300/hour"}]) as limiter:
        with ThreadPoolExecutor(THREADS) as threads:
            verdicts = list(threads.map(lambda _: limiter.check(Request()), range(800)))
        assert sum(verdict.allowed for verdict in verdicts) == 300


def test_checks_of_threads_travel_together(valkey: Server) -> None:
    """While one script call is in flight, checks of other threads are gathered: there are fewer calls than checks."""
    with Limiter.open(valkey.url + PATIENT) as limiter, ThreadPoolExecutor(64) as threads:
        limiter.hit("warm", "5/minute")
        before = valkey.script_calls()
        assert all(threads.map(lambda index: limiter.hit(f"k{index % 50}", "1000/hour").allowed, range(3_000)))
        assert valkey.script_calls() - before < 2_000


def test_everything_a_limiter_does_works_without_await(valkey: Server) -> None:
    """Hits, peeks, refunds, resets, reservations and slots mean on Redis what they mean in memory."""
    with Limiter.open(valkey.url + PATIENT) as limiter:
        taken = limiter.hit("k", "5/minute", 3)
        assert taken.remaining == 2
        limiter.refund(taken, 1)
        assert limiter.peek("k", "5/minute", 0).remaining == 3
        limiter.reset("k", "5/minute")
        assert limiter.peek("k", "5/minute", 0).remaining == 5
        with limiter.reserve("tokens", "1000/hour", 400) as reservation:
            reservation.settle(actual=150)
        assert limiter.peek("tokens", "1000/hour", 0).remaining == 850
        with limiter.slot("reports", "1 concurrent") as slot:
            assert slot.renew()
            assert not limiter.slot("reports", "1 concurrent").take().verdict.allowed
        assert limiter.slot("reports", "1 concurrent").take().verdict.allowed


def test_without_a_server_calls_are_answered_all_the_same() -> None:
    """A server that cannot be reached is no error for callers, and the verdict says how it came about."""
    with Limiter.open("unix:///nowhere.sock?on_store_error=deny") as limiter:
        verdicts = [limiter.hit("k", "5/minute") for _ in range(2)]
    assert [(verdict.allowed, verdict.source) for verdict in verdicts] == [(False, "degraded_deny")] * 2


def test_closing_ends_the_wait_for_a_server_that_is_silent(valkey: Server) -> None:
    """Closing a limiter does not wait for a server that says nothing, and ends the calls that do."""
    limiter = Limiter.open(valkey.url + PATIENT)
    limiter.hit("k", "5/minute")
    valkey.freeze()
    try:
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(limiter.hit, "k", "5/minute")
            while not waits(limiter):
                assert not waiting.done()
            limiter.close()
            with pytest.raises(StoreError, match="was closed while this call waited"):
                waiting.result(PATIENCE)
    finally:
        valkey.thaw()
    with pytest.raises(StoreError, match="was closed; open another one"):
        limiter.hit("k", "5/minute")


def test_an_interrupted_call_shifts_no_answer(valkey: Server) -> None:
    """A caller stopped by Ctrl-C while waiting gets the right answers to all later calls."""
    with Limiter.open(valkey.url + PATIENT) as limiter:
        limiter.hit("interrupted", "5/minute")
        valkey.freeze()

        def interrupt() -> None:
            while not waits(limiter):
                pass
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        other = threading.Thread(target=interrupt)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest-xdist may ignore it
        other.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                limiter.hit("interrupted", "5/minute")
        finally:
            other.join()
            signal.signal(signal.SIGINT, before)
            valkey.thaw()
        # Each key has its own amount, so an answer to another call would show.
        assert [limiter.hit(f"k{amount}", f"{amount}/hour").remaining for amount in range(10, 30)] == list(range(9, 29))


def test_forked_workers_count_on_one_key(valkey: Server) -> None:
    """Workers forked from a process that had used its limiter share one limit with it exactly, as threads call on."""
    limit, calls = "1000/hour", 400
    limiter = Limiter.open(valkey.url + PATIENT)
    admitted = int(limiter.hit("k", limit).allowed)
    stop = threading.Event()

    def go_on() -> int:
        mine = 0
        while not stop.is_set():
            mine += limiter.hit("k", limit).allowed
        return mine

    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(go_on) for _ in range(2)]
        workers = [worker(limiter, limit, calls) for _ in range(2)]
        for process, pipe in workers:
            with os.fdopen(pipe, "rb") as results:
                admitted += int(results.read() or -1)
            assert os.waitpid(process, 0)[1] == 0
        while limiter.hit("k", limit).allowed:
            admitted += 1
        stop.set()
        admitted += sum(future.result(PATIENCE) for future in futures)
    limiter.close()
    assert admitted == 1000


def worker(limiter: Limiter, limit: str, calls: int) -> tuple[int, int]:
    """Fork a process that makes so many calls; its id, and where it says how many were admitted."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    signal.alarm(PATIENCE)  # a worker that hangs dies by it
    with limiter, ThreadPoolExecutor(2) as threads:
        admitted = sum(threads.map(lambda _: limiter.hit("k", limit).allowed, range(calls)))
    os.write(writing, str(admitted).encode())
    os._exit(0)


NEVER_CLOSED = """
limiter.hit("k", "5/hour")
"""
THREADS_INSIDE = """
import threading
started = threading.Barrier(9)
def work():
    limiter.hit("k", "5/hour")
    started.wait()
    while True:
        limiter.hit("k", "5/hour")
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
started.wait()
"""
AT_EXIT = """
import atexit
limiter.hit("k", "5/hour")
atexit.register(limiter.close)
atexit.register(limiter.hit, "k", "5/hour")
"""
FORKED = """
import os
limiter.hit("k", "5/hour")
for uses_it in (True, False):
    if os.fork() == 0:
        if uses_it:
            limiter.hit("k", "5/hour")
        sys.exit(0)
assert [os.wait()[1] for _ in range(2)] == [0, 0]
limiter.hit("k", "5/hour")
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("script", [NEVER_CLOSED, THREADS_INSIDE, AT_EXIT, FORKED])
def test_the_interpreter_exits_quietly(valkey: Server, script: str, loop: str) -> None:
    """A program that ends with an open limiter ends at once, with nothing on stderr, even if threads are in a call."""
    without = "sys.modules['uvloop'] = None" if loop == "asyncio" else ""
    program = f"""
import logging, sys, warnings
{without}
from headgate.sync import Limiter
warnings.simplefilter("ignore", DeprecationWarning)
# In development mode asyncio reports each step that takes 100 ms, as any may on a busy machine.
logging.getLogger("asyncio").addFilter(lambda record: not record.msg.startswith("Executing "))
limiter = Limiter.open({valkey.url + PATIENT!r})
{script}
"""
    # Not traced: at its end coverage writes hundreds of rows, and waits behind eight busy threads for each of them.
    untraced = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    ended = subprocess.run(  # noqa: S603 (our own program)
        [sys.executable, "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=untraced,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_interpreter_exits_while_the_server_is_silent(valkey: Server) -> None:
    """A program ends at once, with nothing on stderr, although a thread of it waits for a server that says nothing."""
    program = f"""
import os, signal, threading
from headgate.sync import Limiter
limiter = Limiter.open({valkey.url + PATIENT!r})
limiter.hit("k", "5/hour")
os.kill({valkey.pid}, signal.SIGSTOP)
threading.Thread(target=limiter.hit, args=("k", "5/hour"), daemon=True).start()
while not limiter._limiter.store.store.store._connection._lock.locked():
    pass
"""
    try:
        ended = subprocess.run(  # noqa: S603 (our own program)
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    finally:
        valkey.thaw()
    assert (ended.returncode, ended.stderr) == (0, "")
