"""A flood does not open the gate, at full length: a used-up caller on up to 5,000 connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.support.flood import Flood, Weather, flooded, judge
from tests.support.valkey import Server, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.figures import Figures
    from tests.support.flood import Seen
    from tests.support.service import Start

KINDS: Final = ("http", "rls")
WORKERS: Final = (1, 2, 4)
CONNECTIONS: Final = (200, 1_000, 2_000, 5_000)
MAX_WORKER_BYTES: Final = 256 * 2**20


@pytest.fixture(scope="module")
def counters(servers_folder: Path) -> Iterator[Server]:
    """A Valkey server on a port."""
    server = Server(servers_folder / "flooded", free_port())
    yield server
    server.kill()


def _note(figures: Figures, case: str, seen: Seen) -> None:
    figures.note(case, "answers to the flood", sum(seen.flood.values()), "")
    figures.check(case, "admitted", seen.admitted, "", 0)
    shed = sum(number for outcome, number in seen.flood.items() if outcome.startswith(("503", "UNAVAILABLE")))
    figures.note(case, "shed", shed, "")
    figures.note(case, "answers to polite users", sum(seen.polite.values()), "")
    figures.note(case, "p99 of their waits", 1000 * seen.polite_p99, "ms")
    figures.check(case, "memory of a worker", seen.worker_bytes / 2**20, "MiB", MAX_WORKER_BYTES / 2**20)


@pytest.mark.parametrize("each", [3, None], ids=["burst", "10 s"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("connections", CONNECTIONS)
def test_a_flood(
    start: Start,
    counters: Server,
    tmp_path: Path,
    figures: Figures,
    connections: int,
    workers: int,
    kind: str,
    each: int | None,
) -> None:
    """However many connections and workers there are, nothing is admitted and no circuit opens."""
    counters.ask("FLUSHALL")
    flood = Flood(kind, connections, 3.0 if each else 10.0, each)
    seen = flooded(start, counters, tmp_path, workers, flood, Weather.CALM)
    how = f"{each} each" if each else "10 s"
    _note(figures, f"flood, {kind}, {workers} workers, {connections} connections, {how}", seen)
    judge(seen, flood)


@pytest.mark.parametrize("connections", [1_000, 2_000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weather", [weather for weather in Weather if weather is not Weather.CALM])
def test_a_flood_in_bad_weather(
    start: Start, counters: Server, tmp_path: Path, figures: Figures, weather: Weather, kind: str, connections: int
) -> None:
    """Busy processors, stopped workers and an unsteady way to Redis do not open the gate either."""
    counters.ask("FLUSHALL")
    flood = Flood(kind, connections, 10.0)
    seen = flooded(start, counters, tmp_path, 2, flood, weather)
    _note(figures, f"flood, {kind}, {connections} connections, {weather}", seen)
    judge(seen, flood)
