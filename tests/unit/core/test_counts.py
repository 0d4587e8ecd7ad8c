"""What is counted of a request, where."""

from __future__ import annotations

from headgate.core.counts import (
    OTHER,
    CacheUse,
    Count,
    CountBatch,
    KeyCount,
    LatencyBucket,
    added_up,
    cut,
    usage_columns,
)
from headgate.core.event import EventKind
from headgate.core.metric_rows import Known, RowBounds, metric_rows
from headgate.core.units import DAY, MINUTE

NOON = 20_000 * DAY + DAY // 2


def _count(
    kind: str, *charged: str | int, rule: str | None = None, user: str | None = "u1", requests: int = 1
) -> Count:
    return Count(NOON, {user: requests}, "free", "/a", is_degraded=False, charged=charged, kind=kind, rule=rule)


def _batch(*counts: Count, latencies: list[LatencyBucket] | None = None) -> CountBatch:
    return CountBatch("b", "server", "eu", list(counts), latencies or [])


def _usage(batch: CountBatch) -> dict[str, tuple[int, ...]]:
    """Requests, denials and cost of the only user by rule."""
    return {rule: tuple(numbers) for _, rule, _, *numbers in zip(*usage_columns(batch), strict=True)}


def test_what_one_rule_denied_is_no_others_denial() -> None:
    """It is denied in all and by its rule; another rule that applied has it in its total only."""
    rows = {
        row.rule: row
        for row in metric_rows(_batch(_count("denied", "a", 1, "b", 1, rule="b", requests=3)))
        if not row.user
    }
    assert {rule: (row.total, row.allowed, row.denied) for rule, row in rows.items()} == {
        "": (3, 0, 3),
        "a": (3, 0, 0),
        "b": (3, 0, 3),
    }


def test_a_watched_rule_has_shadows_and_the_others_admissions() -> None:
    """What would have been denied has passed."""
    rows = {
        row.rule: row for row in metric_rows(_batch(_count(EventKind.SHADOW, "a", 1, rule="watched"))) if not row.user
    }
    assert (rows[""].shadow, rows[""].allowed) == (1, 0)
    assert (rows["a"].shadow, rows["a"].allowed) == (0, 1)
    assert (rows["watched"].shadow, rows["watched"].total) == (1, 1)


def test_rules_beside_have_what_became_of_requests_under_them() -> None:
    """A wait is its rule's alone, and watched rules are counted whether or not they would have denied."""
    throttled = _count("throttled", "a", 1, "slow", 1, rule="slow")._replace(also=("slow", "throttled", "w", "allowed"))
    denied = _count("denied", "a", 1, rule="a")._replace(also=("w", None))
    rows = {row.rule: row for row in metric_rows(_batch(throttled, denied)) if not row.user}
    assert {rule: (row.total, row.allowed, row.denied, row.throttled) for rule, row in rows.items()} == {
        "": (2, 0, 1, 1),
        "a": (2, 1, 1, 0),
        "slow": (1, 0, 0, 1),
        "w": (2, 1, 0, 0),
    }
    assert set(usage_columns(_batch(throttled, denied)).rules) == {"", "a", "slow"}


def test_only_those_who_ask_most_have_rows_by_the_minute() -> None:
    """However many users there are, a minute has so many rows of users and no more; days know all of them."""
    asked: dict[str | None, int] = {f"u{n}": n for n in range(1, 6)}
    again, later = _count("denied", user="u1", requests=9), _count("allowed", user="u2")._replace(minute=NOON + MINUTE)
    batch = _batch(_count("allowed")._replace(users={None: 100, **asked}), again, later)
    rows = {(row.user, row.minute): row for row in metric_rows(batch, bounds=RowBounds(users=2))}
    assert rows.keys() == {("", NOON), ("", NOON + MINUTE), ("u1", NOON), ("u5", NOON), ("u2", NOON + MINUTE)}
    assert (rows["u1", NOON].total, rows["u1", NOON].denied) == (10, 9)
    assert sorted(usage_columns(batch).users) == ["", *sorted(map(str, asked))]


def test_of_those_who_ask_as_often_as_each_other_some_have_rows() -> None:
    """Rows of users are bounded, and a user with a row has asked at least as often as any user without one."""
    users: dict[str | None, int] = {"a": 5, "b": 2, "c": 2, "d": 2, "e": 1}
    batch = _batch(_count("allowed")._replace(users=users))
    for most in range(1, 6):
        found = [row.total for row in metric_rows(batch, bounds=RowBounds(users=most)) if row.user]
        assert sorted(found, reverse=True) == [5, 2, 2, 2, 1][:most]


def test_parts_of_counts_are_the_whole() -> None:
    """A group of many users is cut where it must be, and nothing is lost or counted twice."""
    counts = [_count("allowed")._replace(users={f"u{n}": n for n in range(many)}) for many in (3, 0, 7, 1, 4)]
    parts = [*cut(counts, 4)]
    assert [sum(len(count.users) for count in part) for part in parts] == [4, 4, 4, 3]
    assert sum(count.requests for part in parts for count in part) == sum(count.requests for count in counts)
    bucket = LatencyBucket(NOON, None, None, (), 2, 4)
    assert _batch(*(count for part in parts for count in part), latencies=[bucket]).size == 16
    assert [*cut([], 0)] == []


def test_only_so_many_endpoints_of_a_minute_are_told_apart() -> None:
    """However many paths callers make up, a minute has a bounded number of rows, and all of them are counted."""
    counts = [_count("allowed", "a", 1)._replace(endpoint=f"/{n}", users={"u1": n}) for n in range(1, 6)]
    nameless = _count("allowed", "a", 1)._replace(endpoint=None)
    latencies = [LatencyBucket(NOON, "free", f"/{n}", ("a",), 2, 1) for n in range(1, 6)]
    batch = _batch(*counts, counts[0]._replace(endpoint=OTHER), nameless, latencies=latencies)
    rows = [row for row in metric_rows(batch, bounds=RowBounds(endpoints=2)) if row.rule == "a"]
    assert {row.endpoint: row.total for row in rows} == {"/5": 5, "/4": 4, OTHER: 7, "": 1}
    assert {row.endpoint: sum(row.latency) for row in rows} == {"/5": 1, "/4": 1, OTHER: 3, "": 0}


def test_times_of_a_minute_without_requests_are_kept() -> None:
    """A decision may be counted in one batch and timed in the next."""
    (row,) = metric_rows(_batch(latencies=[LatencyBucket(NOON + MINUTE, None, None, (), 2, 4)]))
    assert (row.minute, row.total, row.latency) == (NOON + MINUTE, 0, [0, 0, 4])


def test_a_rule_with_two_limits_charges_once() -> None:
    """A user pays for requests, not for limits; and nothing for those that were denied."""
    batch = _batch(_count("allowed", "a", 5, "a", 5, requests=2), _count("denied", "a", 5, "a", 5, rule="a"))
    assert _usage(batch) == {"": (3, 1, 0), "a": (3, 1, 10)}


def test_requests_without_a_user_are_counted_as_nobodys() -> None:
    """So all rows of a day add up to all of its requests."""
    count = _count("blocked")._replace(users={None: 1, "": 2})
    assert usage_columns(_batch(count)) == ([20_000 * DAY], [""], [""], [3], [3], [0])


def test_what_was_decided_without_the_store_is_marked() -> None:
    """Degraded requests are counted as what became of them, and as degraded; without a user in no user's row."""
    (row,) = metric_rows(_batch(_count("allowed", user=None)._replace(is_degraded=True)))
    assert (row.total, row.allowed, row.degraded, row.user) == (1, 1, 1, "")


def test_a_user_is_denied_by_one_rule() -> None:
    """The others have the request, and neither a denial nor a charge."""
    batch = _batch(_count("denied", "a", 5, "b", 5, rule="b"))
    assert _usage(batch) == {"": (1, 1, 0), "a": (1, 0, 0), "b": (1, 1, 0)}


def test_what_a_minute_has_already_takes_room() -> None:
    """Rows that are there are added to, and new ones are made while there is room: over all batches, not in each."""
    bounds = RowBounds(endpoints=2, series=3, users=2)
    known = {NOON: Known(frozenset({("", "/a", "free"), ("", "/b", "free")}), frozenset({"u1"}))}
    counts = [
        _count("allowed", user=user)._replace(endpoint=path)
        for user, path in [("u1", "/a"), ("u2", "/c"), ("u3", "/d")]
    ]
    rows = metric_rows(_batch(*counts), known, bounds)
    assert {row.endpoint: row.total for row in rows if not row.user} == {"/a": 1, OTHER: 2}
    assert {row.user for row in rows if row.user} == {"u1", "u2"}


def test_tiers_that_callers_make_up_are_bounded_too() -> None:
    """When a minute has all the rows it may have, one more for each rule counts what is left, whatever its tier."""
    counts = [_count("denied", "a", 1, rule="a")._replace(endpoint=f"/{n % 3}", tier=f"t{n}") for n in range(40)]
    rows = [row for row in metric_rows(_batch(*counts), bounds=RowBounds(series=5)) if not row.user]
    assert len(rows) <= 5 + 2
    for rule in ("", "a"):
        assert sum(row.denied for row in rows if row.rule == rule) == 40
        assert sum(row.denied for row in rows if (row.rule, row.endpoint, row.tier) == (rule, OTHER, OTHER)) > 30


def test_what_was_known_already_is_beside_the_totals() -> None:
    """Cache hits, misses and lease hits are in all rows but those of users; records have a row of their own."""
    use = CacheUse(denials=2, leases=1)
    counts = [
        _count("denied", "a", 1, rule="a", requests=5)._replace(caches=use),
        _count("allowed", requests=4),
        _count("denied", "a", 1, rule="a", requests=3)._replace(is_degraded=True),
        _count("allowed")._replace(users={}, endpoint=None, tier=None, caches=CacheUse(record_hits=7, record_misses=2)),
    ]
    rows = {(row.rule, row.endpoint, row.user): row[12:17] for row in metric_rows(_batch(*counts))}
    assert rows == {
        ("", "/a", ""): (2, 2, 1, 0, 0),
        ("a", "/a", ""): (2, 2, 1, 0, 0),
        ("", "", ""): (0, 0, 0, 7, 2),
        ("", "", "u1"): (0, 0, 0, 0, 0),
    }


def test_what_was_known_already_stays_exact_in_parts_and_sums() -> None:
    """A count that is cut has it in one part; batches that are added up have the sum, and so have API keys."""
    count = _count("denied", "a", 1)._replace(users={"u1": 1, "u2": 1, "u3": 1}, caches=CacheUse(denials=3))
    parts = [each.caches for part in cut([count], 2) for each in part]
    assert parts == [CacheUse(denials=3), CacheUse()]
    keys = (KeyCount(NOON, "k", 2, 1), KeyCount(NOON, "l", 1, 0))
    one, other = _batch(count)._replace(keys=keys), _batch(count, _count("allowed"))._replace(keys=keys[:1])
    both = added_up([one, other])
    assert [each.caches for each in both.counts] == [CacheUse(denials=6), CacheUse()]
    assert both.keys == (KeyCount(NOON, "k", 4, 2), KeyCount(NOON, "l", 1, 0))
    assert (one.size, both.size) == (5, 6)


def test_named_users_are_counted_by_endpoint() -> None:
    """Their rows add up to what they have asked, whether there is room for users or not; other users have one row."""
    counts = [
        _count("allowed", user="u1", requests=5),
        _count("denied", user="u1", requests=2)._replace(endpoint="/b"),
        _count("allowed", user="u1")._replace(endpoint=None),
        _count("allowed", user="u2", requests=9)._replace(endpoint="/b"),
        _count("allowed", user="u3", requests=1),
    ]
    rows = metric_rows(_batch(*counts), bounds=RowBounds(users=1), by_endpoint=frozenset({"u1", "absent"}))
    found = {(row.user, row.endpoint): (row.total, row.denied) for row in rows if row.user}
    assert found == {("u1", "/a"): (5, 0), ("u1", "/b"): (2, 2), ("u1", ""): (1, 0), ("u2", ""): (9, 0)}


def test_a_named_user_has_so_many_endpoints_in_a_minute() -> None:
    """Those that are there, then those with most requests; the rest are counted together."""
    counts = [_count("allowed", requests=each)._replace(endpoint=f"/{each}") for each in range(1, 5)]
    known = {NOON: Known(users=frozenset({"u1"}), user_endpoints=frozenset({("u1", "/1"), ("u1", OTHER)}))}
    rows = metric_rows(_batch(*counts), known, RowBounds(user_endpoints=2), by_endpoint=frozenset({"u1"}))
    assert {row.endpoint: row.total for row in rows if row.user} == {"/1": 1, "/4": 4, OTHER: 5}
