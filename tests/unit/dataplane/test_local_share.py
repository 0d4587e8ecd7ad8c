"""The share of one process, while the shared store is unavailable."""

from __future__ import annotations

import pytest

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Hit
from headgate.core.limit import Rate, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.dataplane.local_share import LocalShare
from headgate.testing import FakeClock


@pytest.mark.parametrize(
    ("limit", "processes", "admitted"),
    [
        ("100/minute", 1, 100),
        ("100/minute", 3, 33),
        ("2/minute", 5, 1),
        ("100/minute burst 20", 4, 5),
        (
            "10/minute burst 40",
            4,
            8,
        ),  # 2 a minute each, and a burst that fills in the 4 minutes of the whole: 8, not 10
        ("3/minute burst 30", 2, 10),
        ("100/minute burst 2", 8, 1),
    ],
)
def test_each_process_admits_its_part_and_not_more(limit: str, processes: int, admitted: int) -> None:
    """All processes together admit no more than the limit, and the share of a burst fills no slower than the whole."""
    share = LocalShare(MemoryStore(FakeClock()), processes)
    algorithm = Algorithm.TOKEN_BUCKET if "burst" in limit else Algorithm.FIXED_WINDOW
    parsed = parse_limit(limit)
    assert isinstance(parsed, Rate)
    hit = Hit("k", Meter(parsed, algorithm), 1)
    assert sum(share.take([hit])[0].allowed for _ in range(200)) == admitted
