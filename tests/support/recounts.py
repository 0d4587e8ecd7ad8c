"""Counts made by chance, and the plainest way to count them again: one request after another."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hypothesis import strategies as st

from headgate.core.counts import Count, CountBatch, LatencyBucket
from headgate.core.event import EventKind
from headgate.core.histogram import BUCKETS
from headgate.core.units import DAY, MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Recount: TypeAlias = Counter[tuple[object, ...]]

START = 20_000 * DAY
"""The beginning of some day."""
COSTS = {"search": 1, "api": 3, "free": 0}
_NAMES = st.sampled_from([None, "", "u1", "u2", "ü"])
_MINUTES = st.sampled_from([0, 1, 1_439, 1_440])


class Single(NamedTuple):
    """One request, as it was decided."""

    minute: int
    user: str | None
    tier: str | None
    endpoint: str | None
    rules: tuple[str, ...]
    kind: str
    rule: str | None
    is_degraded: bool
    also: tuple[str | None, ...]


@st.composite
def counts(draw: st.DrawFn, minutes: st.SearchStrategy[int] = _MINUTES) -> Count:
    """Some alike requests. A rule with two limits appears twice."""
    rules = draw(st.lists(st.sampled_from(sorted(COSTS)), max_size=4))
    kind = draw(st.sampled_from(EventKind))
    by = {
        EventKind.DENIED: st.sampled_from(rules) if rules else st.none(),
        EventKind.BLOCKED: st.sampled_from([None, "gate"]),
        EventKind.SHADOW: st.just("watched"),
        EventKind.THROTTLED: st.sampled_from(rules) if rules else st.none(),
    }.get(kind, st.none())
    has_passed = kind not in {EventKind.DENIED, EventKind.BLOCKED}
    watched = draw(st.sampled_from(["allowed", "shadow"])) if has_passed else None
    also = draw(st.sampled_from([(), ("watched too", watched), ("watched too", watched, "another", watched)]))
    return Count(
        START + MINUTE * draw(minutes),
        draw(st.dictionaries(_NAMES, st.integers(1, 5), min_size=1)),
        draw(st.sampled_from([None, "free", "pro"])),
        draw(st.sampled_from([None, "/a", "/b"])),
        draw(st.booleans()),
        tuple(part for rule in rules for part in (rule, COSTS[rule])),
        kind.value,
        draw(by),
        also,
    )


@st.composite
def times(draw: st.DrawFn, minutes: st.SearchStrategy[int] = _MINUTES) -> LatencyBucket:
    """Some decisions that took about as long."""
    return LatencyBucket(
        START + MINUTE * draw(minutes),
        draw(st.sampled_from([None, "free"])),
        draw(st.sampled_from([None, "/a"])),
        tuple(draw(st.lists(st.sampled_from(sorted(COSTS)), max_size=3))),
        draw(st.integers(0, BUCKETS - 1)),
        draw(st.integers(1, 5)),
    )


@st.composite
def batches(draw: st.DrawFn, minutes: st.SearchStrategy[int] = _MINUTES) -> CountBatch:
    """A batch; tests that store several give them ids."""
    region = draw(st.sampled_from(["", "eu"]))
    return CountBatch(
        "", "server", region, draw(st.lists(counts(minutes), max_size=6)), draw(st.lists(times(minutes), max_size=4))
    )


def alike(minute: int = START, user: str | None = "u1", kind: str = "allowed", requests: int = 1) -> Count:
    """So many requests of a user that no rule applied to."""
    return Count(minute, {user: requests}, None, "/a", is_degraded=False, charged=(), kind=kind, rule=None)


def singles(batch: CountBatch) -> Iterator[Single]:
    """Each request by itself."""
    for minute, users, tier, endpoint, is_degraded, charged, kind, rule, also, _ in batch.counts:
        for user, requests in users.items():
            one = Single(minute, user, tier, endpoint, charged[::2], kind, rule, is_degraded, also)  # type: ignore[arg-type] # names
            yield from repeat(one, requests)


def metrics_of(several: Iterable[CountBatch]) -> Recount:
    """What the minutes must add up to: by minute, rule, endpoint, tier, region, user, and what is counted."""
    found: Recount = Counter()
    for batch in several:
        for one in singles(batch):
            place = (one.endpoint or "", one.tier or "", batch.region)
            rows: list[tuple[tuple[str, ...], str | None]] = [(("", *place, ""), one.kind)]
            if one.user:
                rows.append((("", "", "", batch.region, one.user), one.kind))
            applied = {*one.rules, *one.also[::2], *({one.rule} if one.rule else ())}
            rows += [((str(rule), *place, ""), _outcome(one, str(rule))) for rule in applied]
            for row, outcome in rows:
                found[one.minute, *row, "total"] += 1
                if outcome:
                    found[one.minute, *row, outcome] += 1
                if one.is_degraded:
                    found[one.minute, *row, "degraded"] += 1
        for each in batch.latencies:
            for rule in {"", *each.rules}:
                place = (each.endpoint or "", each.tier or "", batch.region)
                found[each.minute, rule, *place, "", each.bucket] += each.requests
    return found


def _outcome(one: Single, rule: str) -> str | None:
    if rule == one.rule:
        return one.kind
    if rule in one.also:
        return one.also[one.also.index(rule) + 1]
    return None if one.kind in {"denied", "blocked"} else "allowed"


def usage_of(several: Iterable[CountBatch]) -> Recount:
    """What users' days must add up to: by day, user, rule, and what is counted."""
    found: Recount = Counter()
    for one in (one for batch in several for one in singles(batch)):
        has_passed = one.kind in {"allowed", "throttled", "shadow"}
        for rule in {"", *one.rules}:
            place = (one.minute // DAY * DAY, one.user or "", rule)
            found[*place, "requests"] += 1
            if not has_passed and rule in {"", one.rule}:
                found[*place, "denied"] += 1
            if has_passed and rule:
                found[*place, "cost"] += COSTS[rule]
    return +found
