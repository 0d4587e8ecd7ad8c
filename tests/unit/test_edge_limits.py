"""Small parts that keep one client from taking everything: slices, log lines, counts of closed connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.core.metrics import Sample
from headgate.edge.acceptor import ClosedConnections, CloseReason
from headgate.edge.fairness import RoundRobin
from headgate.edge.problems import SECONDS_BETWEEN_LINES, LogLimit
from headgate.edge.telemetry import Telemetry

if TYPE_CHECKING:
    import pytest


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_slices_take_turns() -> None:
    """Two pieces of long work go on in rotation, one slice a turn; one that is given up is skipped."""
    slices, done = RoundRobin(), list[str]()

    async def work(name: str) -> None:
        for _ in range(3):
            await slices.wait_turn()
            done.append(name)

    async def run() -> None:
        given_up = asyncio.create_task(work("c"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(work("a"), work("b"))

    for _ in range(2):  # also on another loop
        done.clear()
        asyncio.run(run())
        assert done == ["a", "b"] * 3


def test_a_loop_that_ended_leaves_no_queue_behind() -> None:
    """What waited there is not waited for on the next loop."""
    slices = RoundRobin()

    async def give_up() -> None:
        asyncio.create_task(slices.wait_turn())  # noqa: RUF006 (it is to be left behind)
        await asyncio.sleep(0)

    asyncio.run(give_up())
    asyncio.run(slices.wait_turn())


def test_a_reason_is_logged_now_and_then() -> None:
    """The first time at once, then every ten seconds with the number of times since."""
    clock = _Clock()
    lines = LogLimit(clock)
    assert [lines.count("a") for _ in range(5)] == [1, 0, 0, 0, 0]
    assert lines.count("b") == 1
    clock.now += SECONDS_BETWEEN_LINES
    assert [lines.count("a") for _ in range(2)] == [5, 0]
    assert all(lines.count(str(number)) == 1 for number in range(1_000))


def test_closed_connections_are_counted_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    """In metrics, and in one line of the log however many there are; those that are merely idle are not logged."""
    closed = ClosedConnections("http", LogLimit(_Clock()))
    for _ in range(1_000):
        closed.count(CloseReason.CONNECTION_LIMIT)
        closed.count(CloseReason.IDLE_TIMEOUT)
    assert list(closed.samples()) == [
        Sample("headgate_connections_closed_total", 1_000, ("http", "connection_limit")),
        Sample("headgate_connections_closed_total", 1_000, ("http", "idle_timeout")),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "connections closed on port http: 1 since the last such line, 1 in all, reason connection_limit"
    ]


def test_metrics_are_written_once_a_second() -> None:
    """A few times in a row at first; more frequent requests get the same text again."""
    clock, written = _Clock(), 0

    def samples() -> list[Sample]:
        nonlocal written
        written += 1
        return []

    telemetry = Telemetry(clock=clock)
    telemetry.add(samples)
    texts = [telemetry.text() for _ in range(1_000)]
    assert written == 10
    assert texts[-1] is texts[-2]
    clock.now += 1.0
    for _ in range(1_000):
        telemetry.text()
    assert written == 11
