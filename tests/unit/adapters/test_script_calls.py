"""What a batch of checks becomes on the wire."""

from __future__ import annotations

from struct import unpack
from typing import TYPE_CHECKING

from headgate.adapters.redis.scripts import packed_hit, script_call, take_script
from headgate.core.decision import Hit
from headgate.core.failure_policy import FailurePolicy, OnStoreError
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.redis.scripts import Batch

WINDOW = Meter(parse_limit("5/minute"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # a rate
BUCKET = Meter(parse_limit("5/minute"), Algorithm.TOKEN_BUCKET)  # type: ignore[arg-type] # a rate
SLOTS = Meter(parse_limit("5 concurrent"), Algorithm.CONCURRENCY)  # type: ignore[arg-type] # slots
HITS = [
    Hit("a", WINDOW, 1),
    Hit("b", WINDOW, 1),
    Hit("c", WINDOW, 1, failure_policy=FailurePolicy(OnStoreError.DENY)),
    Hit("d", WINDOW, 2),
    Hit("e", WINDOW, 2, forced=True),
    Hit("f", BUCKET, 1),
    Hit("g", WINDOW, 1),
    Hit("h", SLOTS, 1),  # held by their keys
    Hit("i", SLOTS, 1),
    Hit("j", SLOTS, 1, holder="x", ttl=7),
    Hit("k", SLOTS, 1, holder="x", ttl=7),
    Hit("l", SLOTS, 1, holder="y", ttl=7),
]


def test_hits_that_differ_only_in_their_keys_are_described_once() -> None:
    """Every hit is described by what the script reads of it, hits that are alike by the same description."""
    requests: list[Sequence[Hit]] = [*((hit,) for hit in HITS[:4]), HITS[4:]]
    batch: Batch = [(hits, None) for hits in requests]  # type: ignore[misc] # no caller waits
    script, many, arguments = script_call(batch, 0, 0, only_peek=False)
    assert many == len(HITS)
    assert arguments[:many] == [hit.key for hit in HITS]
    _, sizes, numbers, *kinds = arguments[many:]
    assert isinstance(sizes, bytes)
    assert isinstance(numbers, bytes)
    assert unpack("<5H", sizes) == (1, 1, 1, 1, 8)
    assert [kinds[number - 1] for number in unpack(f"<{many}H", numbers)] == [packed_hit(hit) for hit in HITS]
    assert len(kinds) == len(set(kinds)) == 8
    assert script == take_script(frozenset({Algorithm.FIXED_WINDOW, Algorithm.TOKEN_BUCKET, Algorithm.CONCURRENCY}))
