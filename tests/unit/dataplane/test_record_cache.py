"""Records in memory: bounded in bytes that are as many as Python takes."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fake_records import FakeCache

from headgate.adapters.zones import zone
from headgate.core.meter import Calendars
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.record_cache import CachedRecord, RecordCache, Shared, SharedRecords, record_of, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.records import KeyRecord, UserRecord

MANY = 20_000
PLENTY = 10**9


def entry_of(name: str, data: Any, until: int = 10**15) -> CachedRecord:  # noqa: ANN401 (JSON)
    return CachedRecord(record_of(name, data), until, 0)


def plain(number: int) -> tuple[str, Any]:
    return f"user:customer-{number:012}", {"tier": "premium", "overrides": None}


def with_limits(number: int) -> tuple[str, Any]:
    overrides = {"search": ["5/minute", f"{100 + number}/hour"], "upload": [f"{number + 1}/day"]}
    return f"user:customer-{number:012}", {"tier": "premium", "overrides": overrides}


def api_key(number: int) -> tuple[str, Any]:
    digest = hashlib.sha256(b"%d" % number).hexdigest()
    members = {"id": f"{number:036}", "hash": digest, "user": f"customer-{number:012}", "tenant": None, "tier": "free"}
    return f"key:{digest}", {**members, "limits": None, "expires": 1e9 + number, "revoked": False}


def unknown(number: int) -> tuple[str, Any]:
    return f"user:unknown{number:012}", None


@pytest.mark.untraced
@pytest.mark.parametrize("kind", [plain, with_limits, api_key, unknown])
def test_the_estimate_is_what_python_takes(kind: Callable[[int], tuple[str, Any]]) -> None:
    """Within 30 %, for users with and without limits of their own, API keys, and names that are not on record."""
    many = MANY if kind is not with_limits else MANY // 10
    rules = parse_rule_set([{"name": name, "per": "user", "limits": "1/hour"} for name in ("search", "upload")])
    calendars = Calendars(zone, lambda: 0)
    tracemalloc.start()
    try:
        cache = RecordCache(PLENTY)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(many):
            name, data = kind(number)
            # As in a process: the name and the time are objects of their own, and limits were asked for by their rules.
            entry = entry_of(name, data, 10**15 + number)
            cache.put(name, entry)
            if entry.record is not None:
                for rule in rules.rules:
                    entry.record.limits.templates(rule, calendars)
        del name, data, entry
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(cache) == many
    assert 0.7 < cache.size / taken < 1.3, f"{cache.size / many:.0f} estimated, {taken / many:.0f} taken"


def test_memory_is_bounded_and_what_was_used_last_stays() -> None:
    """Of many records those used last are held, in so many bytes."""
    cache = RecordCache(100_000)
    for number in range(1_000):
        name, data = plain(number)
        cache.put(name, entry_of(name, data))
        assert cache.get(plain(0)[0]) is not None, "used all the time"
    assert cache.size <= 100_000
    assert 100 < len(cache) < 1_000
    assert cache.get(plain(999)[0]) is not None
    assert cache.get(plain(1)[0]) is None
    assert cache.size == sum(size_of(*plain_entry(number)) for number in range(1_000) if cache.get(plain(number)[0]))


def plain_entry(number: int) -> tuple[str, CachedRecord]:
    name, data = plain(number)
    return name, entry_of(name, data)


def test_more_memory_holds_more_records() -> None:
    """There is no number of records that it ends at."""
    held = []
    for megabytes in (1, 2, 4):
        cache = RecordCache(megabytes * 1_000_000)
        for number in range(12_000):
            cache.put(*plain_entry(number))
        held.append(len(cache))
    assert held[1] / held[0] == pytest.approx(2, rel=0.01)
    assert held[2] / held[0] == pytest.approx(4, rel=0.01)


def test_invented_names_push_out_only_inventions() -> None:
    """However many names a caller invents, what is known stays, and so do unknown names of the other kind."""
    cache = RecordCache(100_000)
    cache.put(*plain_entry(1))
    cache.put("user:unknown", CachedRecord(None, 1, 0))
    for number in range(1_000):
        cache.put(f"key:{number:064}", CachedRecord(None, 1, 0))
    assert cache.get(plain(1)[0]) is not None
    assert cache.get("user:unknown") is not None
    assert len(cache) < 100


def test_assumptions_are_kept_apart_and_end() -> None:
    """They hold until their time, until a record was read, until they are dropped, or until all of them end."""
    cache = RecordCache(100_000)
    entry = CachedRecord(None, 10, 0, is_assumed=True)
    for end in (
        cache.stop_assuming,
        lambda: cache.drop("user:u"),
        lambda: cache.put("user:u", CachedRecord(None, 9, 0)),
    ):
        cache.assume("user:u", entry)
        assert cache.assumed("user:u", 9) is entry
        assert cache.assumed("user:u", 10) is None
        end()
        assert cache.assumed("user:u", 9) is None
    assert cache.get("user:u") is not None


def test_users_of_one_tier_share_one_record() -> None:
    """Whatever number of tiers there is, they are not kept for ever."""
    one, other = (record_of(f"user:u{number}", {"tier": "shared"}) for number in range(2))
    assert one is other
    for number in range(2_000):
        user = record_of("user:u", {"tier": f"tier-{number}"})
        assert user is not None
        assert user.tier == f"tier-{number}"
    assert record_of("user:u", {"tier": "shared"}) is not one


def test_each_process_reads_what_another_one_shared() -> None:
    """Users who are alike are written alike: with one tier, another, none, or limits of their own, and so are keys."""
    found: dict[str, Any] = {
        "user:a": {"tier": "free", "overrides": None},
        "user:b": {"tier": "free", "overrides": {}},
        "user:c": {"tier": "premium", "overrides": None},
        "user:d": {"tier": None, "overrides": None},
        "user:e": {"tier": None, "overrides": None},
        "user:f": {"tier": "free", "overrides": {"search": ["5/minute"]}},
        "user:g": None,
        "user:h": {"tier": "free", "overrides": None},
        **dict([api_key(1), api_key(2)]),
    }

    async def shared() -> list[Shared | None]:
        records = SharedRecords(FakeCache(), lambda: 0, keeps_last_known=True)
        await records.put(found, "era")
        return (await records.get([*found]))[0]

    there = [(each.record, each.is_fresh) if each else None for each in asyncio.run(shared())]
    assert [(_parts(each[0]), each[1]) if each else None for each in there] == [
        (_parts(record_of(name, data)), True) for name, data in found.items()
    ]


def _parts(record: UserRecord | KeyRecord | None) -> tuple[object, ...] | None:
    return None if record is None else (getattr(record, "id", None), record.tier, dict(record.limits.by_rule))


@pytest.mark.parametrize(
    "data", [{"tier": ["free"]}, {"tier": 5}, {"tier": "free", "overrides": [1]}, ["free"], "free"]
)
def test_a_record_that_makes_no_sense_is_none(data: object) -> None:
    """A tier that is known already is no reason to believe the rest."""
    assert record_of("user:u", {"tier": "free"}) is not None
    assert record_of("user:u", data) is None
