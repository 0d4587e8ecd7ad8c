"""A flood does not open the gate: short forms of what `make chaos` does at full length."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.flood import Flood, Weather, flooded, judge
from tests.support.valkey import Server, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Start

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def counters() -> Iterator[Server]:
    """A Valkey server on a port."""
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        server = Server(Path(folder) / "valkey", free_port())
        yield server
        server.kill()


@pytest.mark.parametrize(
    ("kind", "weather"),
    [("http", Weather.CALM), ("http", Weather.BURNERS), ("rls", Weather.STOPPED), ("rls", Weather.UNSTEADY)],
    ids=["http", "http beside CPU burners", "RLS, workers stopped", "RLS, Redis unsteady"],
)
def test_a_flood_is_refused(start: Start, counters: Server, tmp_path: Path, kind: str, weather: Weather) -> None:
    """A caller over its limit stays refused on a thousand connections, and polite users notice nothing."""
    counters.ask("FLUSHALL")
    flood = Flood(kind, 1_000, 2.5)
    judge(flooded(start, counters, tmp_path, 2, flood, weather), flood)


def test_a_burst_is_refused(start: Start, counters: Server, tmp_path: Path) -> None:
    """A thousand connections with three requests each get nothing."""
    counters.ask("FLUSHALL")
    flood = Flood("http", 1_000, 1.0, each=3)
    seen = flooded(start, counters, tmp_path, 2, flood, Weather.CALM)
    judge(seen, flood)
    assert sum(seen.flood.values()) == 3_000
