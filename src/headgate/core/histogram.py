"""How long things took, in counts that can be added up: from any number of processes, over any time.

Each doubling of a time is cut into four, so a quantile is right to about a tenth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CUTS: Final = 4
_MAX_LATENCY: Final = 2**27
"""Microseconds, over two minutes. Whatever takes longer is in the last bucket."""
BUCKETS: Final = 4 + (27 - 2) * _CUTS
_SHORT: Final = 4_096


def bucket_of(micros: int) -> int:
    """The bucket of a time in microseconds."""
    if micros < _SHORT:
        return _TABLE[micros] if micros >= 0 else 0
    return _bucket(micros)


def _bucket(micros: int) -> int:
    micros = min(micros, _MAX_LATENCY - 1)
    if micros < _CUTS:
        return micros
    octave = micros.bit_length() - 3
    return _CUTS * octave + (micros >> octave)


def bounds(bucket: int) -> tuple[int, int]:
    """From and below how many microseconds a bucket holds."""
    if bucket < _CUTS:
        return bucket, bucket + 1
    octave, cut = divmod(bucket - _CUTS, _CUTS)
    return (_CUTS + cut) << octave, (_CUTS + cut + 1) << octave


def added(counts: Sequence[int], more: Sequence[int]) -> list[int]:
    """Two histograms as one; a short one has nothing in its further buckets."""
    if len(counts) < len(more):
        counts, more = more, counts
    return [count + (more[index] if index < len(more) else 0) for index, count in enumerate(counts)]


def histogram(buckets: Iterable[tuple[int, int]]) -> list[int]:
    """A histogram from buckets and how often each was met, as short as it can be."""
    counts: list[int] = []
    for bucket, times in buckets:
        counts.extend([0] * (bucket + 1 - len(counts)))
        counts[bucket] += times
    return counts


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Microseconds below which this share of all times lies, cut evenly within its bucket; None if there are none."""
    total = sum(counts)
    if not total:
        return None
    wanted, seen = share * total, 0
    for bucket, count in enumerate(counts):
        if count and seen + count >= wanted:
            low, high = bounds(bucket)
            return low + (high - low) * max(0.0, wanted - seen) / count
        seen += count
    raise AssertionError  # pragma: no cover (the last bucket with something in it reaches every share)


_TABLE: Final = bytes(_bucket(micros) for micros in range(_SHORT))
