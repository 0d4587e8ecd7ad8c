"""What the recorder makes of verdicts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import Limiter, Request
from headgate.core.api_key import public_name
from headgate.core.counts import OTHER, CacheUse, CountBatch, KeyCount, usage_columns
from headgate.core.degraded import allowed as degraded_allow
from headgate.core.denial import FromDenyCache
from headgate.core.event import EventKind
from headgate.core.lease import FromLease
from headgate.core.metric_rows import metric_rows
from headgate.core.own_limits import LimitsByRule, OwnLimits
from headgate.core.thinning import EventBudget
from headgate.core.units import DAY, MINUTE, SECOND
from headgate.core.verdict import verdict as made_of
from headgate.dataplane import groups, key_use, multi_descriptor
from headgate.dataplane import recorder as recorders
from headgate.dataplane.groups import MAX_NAME
from headgate.dataplane.recorder import Recorder
from headgate.testing import FakeClock
from headgate.wiring import parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.core.counts import Count
    from headgate.core.event import Event

EVERYTHING: Final = 1.0
RULES: Final[list[dict[str, Any]]] = [
    {"name": "users", "per": "user", "limits": "3/minute", "algorithm": "fixed_window", "sample": EVERYTHING},
    {"name": "all", "limits": "9/minute", "algorithm": "fixed_window", "match": {"endpoints": ["/two"]}, "sample": 1},
    {"name": "watched", "per": "user", "limits": "2/minute", "action": "log", "layer": "w",
     "algorithm": "fixed_window", "match": {"endpoints": ["/watched"]}},
    {"name": "shut", "action": "block", "match": {"endpoints": ["/shut"]}},
    {"name": "open", "action": "allow", "match": {"endpoints": ["/open"]}},
    {"name": "slow", "per": "user", "limits": "5/second", "algorithm": "leaky_bucket", "action": "throttle",
     "max_delay": "30s", "match": {"endpoints": ["/slow"]}, "layer": "s", "sample": 1},
]  # fmt: skip
PATHS: Final = ("/", "/two", "/watched", "/shut", "/open", "/slow")


class Scene:
    """A limiter with a recorder, and a clock that stands still."""

    def __init__(self, rules: list[dict[str, Any]] = RULES, **options: Any) -> None:  # noqa: ANN401 (the recorder's)
        self.clock = FakeClock()
        self.seconds = 5.0
        self.recorder = Recorder(self.clock, self._timer, **options)
        self.limiter = Limiter(*parts("memory://", rules, self.clock), observer=self.recorder)

    def _timer(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def check(self, path: str = "/", user: str | None = "ann", cost: int | None = None, **parts: Any) -> bool:  # noqa: ANN401 (the request's)
        assert self.limiter.check_now is not None
        return self.limiter.check_now(Request(user=user, path=path, **parts), cost).allowed


def _stands_for(event: Event) -> int:
    return 1 if event.extra is None else int(event.extra.get("stands_for", 1))


def _recounted(events: Iterable[Event]) -> Counter[tuple[Any, ...]]:
    return Counter((each.at - each.at % MINUTE, each.user, each.tier, each.endpoint, each.decision) for each in events)


def _counted(counts: Iterable[Count]) -> Counter[tuple[Any, ...]]:
    counted: Counter[tuple[Any, ...]] = Counter()
    for count in counts:
        for user, requests in count.users.items():
            counted[count.minute, user, count.tier, count.endpoint, count.kind] += requests
    return counted


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([path for path in PATHS if path != "/open"]),
            st.sampled_from(["ann", "bob", None]),
            st.sampled_from(["free", None]),
            st.integers(0, 40),
        ),
        max_size=60,
    )
)
def test_counts_equal_a_recount_of_events_where_all_are_kept(
    calls: list[tuple[str, str | None, str | None, int]],
) -> None:
    """Where the sample is everything, counting the events again gives the counts."""
    scene = Scene()
    for path, user, tier, seconds in calls:
        scene.clock.advance(seconds)
        scene.check(path, user, tier=tier)
    events = scene.recorder.take_events()
    assert len(events) == len(calls) == scene.recorder.emitted
    assert [event.sequence for event in events] == [*range(1, len(calls) + 1)]
    assert _recounted(events) == _counted(scene.recorder.take_counts()[0])


def test_a_full_bucket_is_recorded_as_full() -> None:
    """Of a bucket the limit of an event is what it holds, so a caller without tokens has used all of it."""
    rules = [{"name": "bucket", "limits": "120/minute burst 4", "algorithm": "token_bucket", "sample": 1}]
    scene = Scene(rules)
    assert [scene.check() for _ in range(5)] == [True] * 4 + [False]
    assert [(event.used, event.limit) for event in scene.recorder.take_events()] == [
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
        (4, 4),
    ]


STEADY: Final[list[dict[str, Any]]] = [
    {"name": "users", "per": "user", "limits": "3/minute", "algorithm": "fixed_window"},
    {"name": "all", "limits": "30/minute", "match": {"endpoints": ["/two"]}},
    {"name": "regional", "limits": "9/minute", "match": {"endpoints": ["/one"], "attributes": {"region": "eu"}}},
    {"name": "slow", "per": "user", "limits": "5/second", "algorithm": "leaky_bucket", "action": "throttle",
     "max_delay": "1s", "match": {"endpoints": ["/slow"]}, "layer": "s"},
    {"name": "watched", "per": "user", "limits": "2/minute", "action": "log", "match": {"endpoints": ["/watched"]}},
]  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["/", "/two", "/one", "/slow", "/watched"]),
            st.sampled_from(["ann", "bob", None]),
            st.sampled_from([None, None, "/{template}"]),
            st.sampled_from([None, None, 2]),
            st.sampled_from([{}, {}, {"region": "eu"}]),
            st.booleans(),
            st.sampled_from([0, 0, 1, 30, 61, -61]),
        ),
        max_size=60,
    )
)
def test_shortcuts_change_nothing(calls: list[tuple[Any, ...]]) -> None:
    """What is counted and kept by a shortcut is what is counted and kept without one, whatever came before."""
    scene = Scene([{**rule, "sample": 0} for rule in STEADY])
    short, long = (Recorder(scene.clock, lambda: 1.5) for _ in range(2))
    assert scene.limiter.check_now is not None
    for path, user, route, cost, attributes, is_degraded, seconds in calls:
        scene.clock.advance(seconds)
        request = Request(user=user, path=path, route=route, attributes=attributes)
        verdict = scene.limiter.check_now(request, cost)
        plan, decisions = verdict.plan, verdict.decisions
        watched = [finding.decision for finding in verdict.findings if finding.shadow]
        if is_degraded:
            decisions = [degraded_allow(bound.hit, scene.clock()) for bound in plan.enforced]
        started = float(seconds == 0)
        short.offer(request, cost, made_of(plan, decisions, watched), started)
        long.offer(request, cost, made_of(plan._replace(alike=None), decisions, watched), started)
        if seconds == 1:
            assert _everything(short) == _everything(long)
    assert _everything(short) == _everything(long)


def _everything(recorder: Recorder) -> list[Any]:
    counts, latencies = recorder.take_counts()
    return [[event._replace(id="") for event in recorder.take_events()], sorted(counts, key=repr), sorted(latencies)]


def test_a_decision_of_the_minute_before_is_counted_there() -> None:
    """Where decisions come late, each is counted in its own minute, and those of this one go on as before."""
    scene = Scene(STEADY)
    for minutes in (0, 0, 1, -1, 0, 1, 0):
        scene.clock.advance(minutes * 60)
        scene.check(user=f"{minutes}")
    minutes_of = Counter[int]()
    for count in scene.recorder.take_counts()[0]:
        minutes_of[count.minute] += count.requests
    assert [number for _, number in sorted(minutes_of.items())] == [4, 3]


def test_what_becomes_of_a_request_is_told() -> None:
    """Admissions, denials, waits, blocks and what a watched rule would deny are told apart, with the rule behind it."""
    scene = Scene()
    for path, times in {"/": 4, "/two": 1, "/watched": 3, "/shut": 1, "/slow": 2}.items():
        for _ in range(times):
            scene.check(path, user=path)
    told = Counter((event.endpoint, event.decision, event.rule, event.status) for event in scene.recorder.take_events())
    assert told == {
        ("/", "allowed", "users", 200): 3,
        ("/", "denied", "users", 429): 1,
        ("/two", "allowed", "users", 200): 1,
        ("/watched", "allowed", "users", 200): 2,
        ("/watched", "shadow", "watched", 200): 1,
        ("/shut", "blocked", "shut", 403): 1,
        ("/slow", "allowed", "users", 200): 1,
        ("/slow", "throttled", "slow", 200): 1,
    }
    counts = {(count.endpoint, count.kind): count for count in scene.recorder.take_counts()[0]}
    assert counts["/", "denied"].rule == "users"
    assert counts["/two", "allowed"].charged == ("all", 1, "users", 1)
    assert counts["/watched", "shadow"].rule == "watched"
    assert counts["/shut", "blocked"][4:9] == (False, (), "blocked", "shut", ("shut", "blocked"))


def test_every_rule_that_applied_has_its_own_outcome() -> None:
    """Rules that watch, exempt or refuse nothing are counted with what became of the requests they applied to."""
    more = {
        **RULES[2], "name": "stricter", "limits": ["1/minute", "9/hour"], "layer": "v",
        "match": {"endpoints": ["/watched", "/slow"]},
    }  # fmt: skip
    scene = Scene([*RULES, more])
    for path, times in {"/watched": 4, "/open": 2, "/shut": 1, "/slow": 3}.items():
        for _ in range(times):
            scene.check(path, user=path)
    counts, latencies = scene.recorder.take_counts()
    rows = metric_rows(CountBatch("b", "server", "", counts, latencies))
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for name in ("total", "allowed", "denied", "throttled", "blocked", "shadow"):
            found[row.rule, name] += 0 if row.user else getattr(row, name)
    assert {place: number for place, number in found.items() if number and place[0]} == {
        ("users", "total"): 7, ("users", "allowed"): 6, ("users", "denied"): 1,
        ("watched", "total"): 4, ("watched", "allowed"): 2, ("watched", "shadow"): 1,
        ("stricter", "total"): 7, ("stricter", "allowed"): 2, ("stricter", "shadow"): 4,
        ("open", "total"): 2, ("open", "allowed"): 2,
        ("shut", "total"): 1, ("shut", "blocked"): 1,
        ("slow", "total"): 3, ("slow", "allowed"): 1, ("slow", "throttled"): 2,
    }  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), st.integers(0, 20)), max_size=60))
def test_rules_are_counted_as_their_decisions_say(calls: list[tuple[str, int]]) -> None:
    """Counting the decisions of verdicts again, rule by rule, gives the rows."""
    scene, wanted = Scene(), Counter[tuple[str, str]]()
    assert scene.limiter.check_now is not None
    for path, seconds in calls:
        scene.clock.advance(seconds)
        verdict = scene.limiter.check_now(Request(user="ann", path=path), None)
        for bound in (*verdict.plan.enforced, *verdict.plan.shadows):
            wanted[bound.rule.name, "total"] += 1
        if verdict.plan.gate is not None:
            wanted[verdict.plan.gate.name, "total"] += 1
            wanted[verdict.plan.gate.name, "allowed" if verdict.allowed else "blocked"] += 1
        for rule, decision, is_watched in [(each.rule.name, each.decision, each.shadow) for each in verdict.findings]:
            if verdict.allowed:
                passed = "throttled" if decision.delay else "allowed"
                wanted[rule, passed if decision.allowed else "shadow"] += 1
                assert decision.allowed or is_watched
            elif verdict.rule is not None and rule == verdict.rule.name:
                wanted[rule, "denied"] += 1
    found: Counter[tuple[str, str]] = Counter()
    for row in metric_rows(CountBatch("b", "server", "", *scene.recorder.take_counts())):
        for name in ("total", "allowed", "denied", "throttled", "blocked", "shadow"):
            found[row.rule, name] += getattr(row, name) if row.rule else 0
    assert +found == wanted


def test_an_event_has_all_that_is_needed_to_decide_it_again() -> None:
    """Everything that rules can ask about is in the event; what is seldom there is together."""
    scene = Scene()
    request = Request(
        user="ann", tenant="t", api_key="k", ip="192.0.2.7", tier="free", method="GET", path="/", route="/{any}",
        attributes={"plan": "b"}, limits=OwnLimits(LimitsByRule({"users": "2/minute"})),
    )  # fmt: skip
    for _ in range(2):
        asyncio.run(scene.limiter.check(request, 2))
    first, second = scene.recorder.take_events()
    assert first[3:10] == ("ann", "t", public_name("k"), "192.0.2.7", "free", "GET", "/")
    assert first[10:18] == ("users", "allowed", "store", 2, 2, 2, 200, None)
    assert first.at == scene.clock()
    assert first.extra == {
        "attributes": {"plan": "b"}, "route": "/{any}", "cost": 2, "limits": {"user": {"users": ["2/minute"]}},
    }  # fmt: skip
    assert OwnLimits.from_data(first.extra["limits"]).user.by_rule == request.limits.user.by_rule  # type: ignore[union-attr] # it has some
    assert (second.decision, second.used, second.limit) == ("denied", 2, 2)
    assert second.retry_after == pytest.approx((MINUTE - scene.clock() % MINUTE) / SECOND)
    assert scene.recorder.take_keys() == {"k": scene.clock()}
    assert [count.endpoint for count in scene.recorder.take_counts()[0]] == ["/{any}"] * 2


def test_no_event_has_an_api_key_in_it() -> None:
    """Only ids and digests, also among the attributes, where Envoy's descriptors are; what is malformed is left out."""
    scene = Scene()
    for text in ("sk_live_1", "hg_malformed"):
        scene.check(api_key=text, attributes={"api_key": text, "plan": "b"})
    first, second = scene.recorder.take_events()
    digest = public_name("sk_live_1")
    assert (first.api_key, first.extra) == (digest, {"attributes": {"api_key": digest, "plan": "b"}})
    assert (second.api_key, second.extra) == (None, {"attributes": {"api_key": "", "plan": "b"}})


def test_what_is_not_there_takes_no_room() -> None:
    """An event without anything unusual has nothing extra, and otherwise only what there is."""
    scene = Scene()
    scene.check()
    scene.check(attributes={"plan": "b"})
    assert [event.extra for event in scene.recorder.take_events()] == [None, {"attributes": {"plan": "b"}}]


def test_requests_that_are_exempt_are_counted_but_are_no_events() -> None:
    """What an `allow` rule lets pass has no rule that says how many to keep."""
    scene = Scene()
    assert scene.check("/open")
    assert scene.recorder.take_events() == []
    (count,) = scene.recorder.take_counts()[0]
    assert (count.kind, count.charged, count.requests) == ("allowed", (), 1)


def test_a_sample_of_admissions_is_kept_and_of_denials_the_first_and_some_more() -> None:
    """Of what passes about the share that the rule says becomes events; one of a denial says what it stands for."""
    rules = [
        {"name": "few", "limits": "100000/hour", "sample": 0.05, "match": {"endpoints": ["/few"]}},
        {"name": "many", "limits": "100000/hour", "sample": 0.5, "match": {"endpoints": ["/many"]}},
        {"name": "none", "limits": "100000/hour", "sample": 0, "match": {"endpoints": ["/none"]}},
        {"name": "no", "limits": "1/hour", "sample": 0, "match": {"endpoints": ["/no"]}},
    ]
    scene = Scene(rules, budget=EventBudget(overall=5_000))
    for path in ("/few", "/many", "/none", "/no"):
        for _ in range(4_000):
            scene.check(path)
    events = scene.recorder.take_events(is_last=True)
    kept = Counter(event.endpoint for event in events)
    assert 100 < kept["/few"] < 330
    assert 1_700 < kept["/many"] < 2_300
    assert (kept["/none"], kept["/no"]) == (0, 10 + 9 + 9 + 2 + 1)
    assert sum(map(_stands_for, events)) == kept["/few"] + kept["/many"] + 3_999
    counted = _counted(scene.recorder.take_counts()[0])
    assert sum(counted.values()) == 16_000


def test_the_more_decisions_there_are_the_fewer_are_timed() -> None:
    """Where there are few, all; where there are many, one in 64; and where they become few again, all again."""
    scene = Scene()

    def timed(checks: int) -> int:
        for _ in range(checks):
            scene.check()
        return sum(each.requests for each in scene.recorder.take_counts()[1])

    assert timed(900) == 900
    timed(100 + 4 * 1_000 + 16 * 1_000 + 8_192)
    assert timed(4_096) == 64
    for _ in range(4):
        scene.recorder.take_events()
    assert timed(50) == 50


def test_without_events_there_are_only_counts() -> None:
    """With events switched off everything is still counted."""
    scene = Scene(keeps_events=False)
    for path in PATHS:
        for _ in range(20):
            scene.check(path)
    assert scene.recorder.emitted == scene.recorder.waiting == 0
    assert sum(_counted(scene.recorder.take_counts()[0]).values()) == 20 * len(PATHS)
    assert scene.recorder.take_counts() == ([], [])


def test_when_events_are_not_taken_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is bounded, and what was pushed out is counted exactly."""
    monkeypatch.setattr(recorders, "_MAKE_AT_ONCE", 1)
    scene = Scene(most_events=3)
    for number in range(5):
        scene.check(user=f"user-{number}")
    assert (scene.recorder.emitted, scene.recorder.waiting, scene.recorder.dropped) == (5, 3, 2)
    assert [event.user for event in scene.recorder.take_events()] == ["user-2", "user-3", "user-4"]
    assert (scene.recorder.waiting, scene.recorder.dropped) == (0, 2)


def test_callers_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names and too many endpoints or keys are counted, but not told apart."""
    monkeypatch.setattr(groups, "MAX_ENDPOINTS", 3)
    monkeypatch.setattr(groups, "MAX_TIERS", 3)
    monkeypatch.setattr(key_use, "MAX_KEYS", 2)
    monkeypatch.setattr(recorders, "_FOLD_AFTER", 2)
    scene = Scene([{"name": "wide", "limits": "100000/hour"}])
    for number in range(400):
        scene.check(f"/{number % 20}", api_key=f"key-{number}")
    scene.check("/" + "x" * MAX_NAME, user="u" * (MAX_NAME + 1), api_key="k" * (MAX_NAME + 1))
    counts, latencies = scene.recorder.take_counts()
    assert sum(count.requests for count in counts) == 401
    assert {count.endpoint for count in counts} == {"/0", "/1", "/2", OTHER}
    assert {user for count in counts for user in count.users} == {"ann", None}
    assert len({each.endpoint for each in latencies}) <= 4
    assert len(scene.recorder.take_keys()) == 2
    for number in range(400):
        scene.check(tier=f"tier-{number}")
    counts = scene.recorder.take_counts()[0]
    assert {count.tier for count in counts} == {"tier-0", "tier-1", "tier-2", OTHER}
    assert sum(count.requests for count in counts) == 400
    scene.check("/" + "x" * MAX_NAME)
    assert [count.endpoint for count in scene.recorder.take_counts()[0]] == [OTHER]


def test_decisions_without_the_store_are_marked() -> None:
    """A request that was let pass because the store is unavailable is counted as degraded."""
    scene = Scene()
    request = Request(user="ann", path="/")
    plan = scene.limiter.plan(request)
    degraded = made_of(plan, [degraded_allow(bound.hit, scene.clock()) for bound in plan.enforced])
    scene.recorder.offer(request, None, degraded, 0.0)
    (count,) = scene.recorder.take_counts()[0]
    assert (count.kind, count.is_degraded) == (EventKind.ALLOWED, True)
    assert scene.recorder.take_events()[0].source == "degraded_allow"


def test_denials_of_many_users_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many requests there are between two looks, what is kept of them grows with users, not with requests."""
    monkeypatch.setattr(recorders, "_FOLD_AFTER", 4)
    scene = Scene([{"name": "no", "limits": "1/hour"}])
    for _ in range(50):
        scene.check()
    assert _counted(scene.recorder.take_counts()[0]).total() == 50


def test_descriptions_that_are_counted_are_recorded() -> None:
    """What Envoy describes is recorded like any other request."""
    scene = Scene()
    request = Request(user="ann", path="/two")
    part = multi_descriptor.DescriptorPlan(scene.limiter.plan(request, 2), request=request, cost=2)
    asyncio.run(multi_descriptor.decide(scene.limiter, [part]))
    (event,) = scene.recorder.take_events()
    assert (event.user, event.decision, event.extra) == ("ann", "allowed", {"cost": 2})


def test_whatever_becomes_of_requests_keys_are_noted_and_users_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under several limits, behind a gate, with a rule that is watched: when a key was used is known, and all count."""
    monkeypatch.setattr(recorders, "_FOLD_AFTER", 2)
    scene = Scene([{name: value for name, value in rule.items() if name != "sample"} for rule in RULES])
    for path in PATHS * 40:
        scene.clock.advance(60)
        scene.check(path, api_key=path)
    for _ in range(5):
        scene.check("/open")
    assert set(scene.recorder.take_keys()) == set(PATHS)
    assert sum(count.requests for count in scene.recorder.take_counts()[0]) == 40 * len(PATHS) + 5


def test_refusals_of_a_minute_that_none_stands_for_yet_are_in_its_last_event() -> None:
    """At the end of a minute each subject has an event for what is left; the next minute begins with single ones."""
    scene = Scene([{"name": "no", "action": "block"}])
    for _ in range(25):
        scene.check()
    first = scene.recorder.take_events()
    assert [_stands_for(event) for event in first] == [1] * 10 + [10]
    scene.seconds += 60
    (last,) = scene.recorder.take_events()
    assert (_stands_for(last), last.sequence, last.user, last.decision) == (5, 12, "ann", "blocked")
    assert last.id not in {event.id for event in first}
    scene.check()
    assert [_stands_for(event) for event in scene.recorder.take_events()] == [1]
    assert (scene.recorder.emitted, scene.recorder.dropped, scene.recorder.left_out) == (13, 0, 0)


def test_a_last_event_that_stands_for_itself_says_no_more() -> None:
    """It is an event like any other."""
    scene = Scene([{"name": "no", "action": "block"}])
    for _ in range(11):
        scene.check()
    assert [event.extra for event in scene.recorder.take_events(is_last=True)] == [None] * 11


@pytest.mark.untraced
def test_callers_without_number_make_a_bounded_number_of_events() -> None:
    """Each is refused once: after so many events they are sampled, and what is left out is known."""
    scene = Scene([{"name": "no", "action": "block"}], budget=EventBudget(first=3, overall=100))
    for number in range(20_000):
        scene.check(f"/{number}", user=None, ip=f"2001:db8:{number:x}::1")
    events = scene.recorder.take_events(is_last=True)
    assert 250 < len(events) < 330
    assert sum(map(_stands_for, events)) + scene.recorder.left_out == 20_000
    assert scene.recorder.emitted == len(events)
    assert sum(count.requests for count in scene.recorder.take_counts()[0]) == 20_000


def test_samples_of_a_minute_are_bounded() -> None:
    """Also where everything is sampled: the next minute begins anew."""
    scene = Scene([{"name": "wide", "limits": "100000/hour", "sample": 1}], budget=EventBudget(overall=10))
    for minute in range(2):
        for _ in range(100):
            scene.check()
        assert len(scene.recorder.take_events()) == 19
        assert scene.recorder.left_out == (minute + 1) * 81
        scene.seconds += 60
        assert scene.recorder.take_events() == []


def test_rules_with_templates_name_endpoints() -> None:
    """Where a rule has a template, that is the endpoint; a route goes before it, and behind a prefix paths are told."""
    rules: list[dict[str, Any]] = [
        {"name": "posts", "limits": "1000/hour", "match": {"endpoints": ["/users/{id}/posts", "/api/*"]}},
        {"name": "wide", "limits": "1000/hour"},
    ]
    scene = Scene(rules)
    for path in ("/users/1/posts", "/users/2/posts", "/api/1", "/else"):
        scene.check(path)
    scene.check("/users/3/posts", route="/users/:id/posts")
    counts = scene.recorder.take_counts()[0]
    assert Counter({count.endpoint: count.requests for count in counts}) == {
        "/users/{id}/posts": 2, "/api/1": 1, "/else": 1, "/users/:id/posts": 1,
    }  # fmt: skip


def test_names_are_bounded_by_the_minute_not_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often counts are taken, a minute has so many endpoints; the next one begins anew."""
    monkeypatch.setattr(groups, "MAX_ENDPOINTS", 3)
    scene = Scene([{"name": "wide", "limits": "100000/hour"}])
    for minute in range(2):
        found: Counter[str | None] = Counter()
        for number in range(10):
            scene.check(f"/{minute}/{number}")
            for count in scene.recorder.take_counts()[0]:
                found[count.endpoint] += count.requests
        assert found == {f"/{minute}/0": 1, f"/{minute}/1": 1, f"/{minute}/2": 1, OTHER: 7}
        scene.clock.advance(60)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), st.integers(0, 9), st.integers(1, 4)), max_size=60))
def test_without_room_for_groups_sums_stay_exact(calls: list[tuple[str, int, int]]) -> None:
    """Where callers state all kinds of costs, what has no group of its own is counted together, costs included."""
    few, all_ = Scene(), Scene()
    for scene, most in ((few, 2), (all_, groups.MAX_GROUPS)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(groups, "MAX_GROUPS", most)
            for path, cost, seconds in calls:
                scene.clock.advance(seconds)
                scene.check(path, cost=cost)
    found, wanted = (_usage(scene.recorder.take_counts()[0]) for scene in (few, all_))
    assert found == wanted


def _usage(counts: list[Count]) -> Counter[tuple[Any, ...]]:
    """What each rule has counted and charged, over all callers."""
    columns = usage_columns(CountBatch("b", "server", "", counts, []))
    found: Counter[tuple[Any, ...]] = Counter()
    for day, rule, requests, denied, cost in zip(
        columns.days, columns.rules, columns.requests, columns.denied, columns.costs, strict=True
    ):
        found.update({(day, rule, "requests"): requests, (day, rule, "denied"): denied, (day, rule, "cost"): cost})
    return +found


def test_users_are_bounded_while_they_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who are there are counted as before, and the others without a name."""
    monkeypatch.setattr(groups, "MAX_USERS", 3)
    monkeypatch.setattr(recorders, "_FOLD_AFTER", 2)
    scene = Scene([{"name": "wide", "limits": "100000/hour"}])
    for number in range(60):
        scene.check(user=f"user-{number % 20}")
    (count,) = scene.recorder.take_counts()[0]
    assert count.requests == 60
    assert len(count.users) <= 3 + 2 + 1
    assert count.users["user-0"] == 3


def test_an_event_is_bounded_whatever_callers_send() -> None:
    """Long texts are cut and stay different, and attributes without end are left out, with their number."""
    scene = Scene([{"name": "no", "action": "block"}])
    ends = ("a", "b")
    for end in ends:
        long = "x" * 8_000 + end
        scene.check("/" + long, user=long, method=long, attributes={"a": long}, route="/" + long)
    events = scene.recorder.take_events()
    assert len({event.user for event in events}) == len({event.endpoint for event in events}) == len(ends)
    for event in events:
        assert [len(event.user or ""), len(event.method or ""), len(event.endpoint or "")] == [255, 255, 1_000]
        assert event.extra is not None
        assert (event.extra["attributes_left_out"], len(event.extra["route"])) == (1, 1_000)
    scene.check(user="half\ud800" * 100)
    assert len(scene.recorder.take_events()[0].user or "") == 255


def test_requests_by_api_key_are_counted_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key has its requests and refusals, under its id or a digest; above the bound they are counted together."""
    monkeypatch.setattr(key_use, "MAX_KEYS", 2)
    scene = Scene()
    ours, foreign = "018f6f8e-0000-4000-8000-000000000000", "someone-elses-key"
    for _ in range(4):
        scene.check(api_key=ours)
    scene.check("/shut", api_key=foreign)
    scene.check("/open", api_key="third")
    scene.check("/open", api_key="x" * 300)
    day = scene.clock() - scene.clock() % DAY
    assert sorted(scene.recorder.take_key_counts()) == sorted(
        [
            KeyCount(day, ours, 4, 1),
            KeyCount(day, public_name(foreign) or "", 1, 1),
            KeyCount(day, OTHER, 2, 0),
        ]
    )
    assert scene.recorder.take_key_counts() == []


def test_refusals_from_memory_are_counted_as_such() -> None:
    """Of the refusals of a minute those that the deny cache gave are told, the first of them and those that follow."""
    scene = Scene()
    requests = [Request(user="ann", path="/") for _ in range(6)]
    assert scene.limiter.check_now is not None
    verdicts = [scene.limiter.check_now(request) for request in requests]
    refused = verdicts[-1]
    known = made_of(refused.plan, [FromDenyCache(*refused.decisions[0])])
    scene.recorder.take_counts()
    for verdict in (known, known, refused, known):
        scene.recorder.offer(requests[0], None, verdict, 0.0)
    (count,) = scene.recorder.take_counts()[0]
    assert (count.requests, count.caches) == (4, CacheUse(denials=3))


def test_decisions_of_leases_are_counted_as_such() -> None:
    """Requests that a lease admitted are told apart from those that the store decided."""
    scene = Scene()
    request = Request(user="ann", path="/")
    assert scene.limiter.check_now is not None
    admitted = scene.limiter.check_now(request)
    scene.recorder.take_counts()
    leased = made_of(admitted.plan, [FromLease(*admitted.decisions[0])])
    for verdict in (leased, admitted, leased):
        scene.recorder.offer(request, None, verdict, 0.0)
    counts = scene.recorder.take_counts()[0]
    assert (sum(count.requests for count in counts), sum(count.caches.leases for count in counts)) == (3, 2)


def test_refusals_by_different_rules_are_thinned_apart() -> None:
    """A caller that one rule refuses without end is still seen when another rule begins to."""
    scene = Scene([{"name": name, "action": "block", "match": {"endpoints": [f"/{name}"]}} for name in ("a", "b")])
    for path in ("/a", "/b"):
        for _ in range(12):
            scene.check(path)
    kept = Counter(event.endpoint for event in scene.recorder.take_events())
    assert kept == {"/a": 10, "/b": 10}


def test_shortcuts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many paths callers invent, and also those that stand again in a later minute."""
    monkeypatch.setattr(recorders, "MAX_SHORTCUTS", 3)
    scene = Scene([{"name": "wide", "limits": "100000/hour", "sample": 0}])
    for minute in range(2):
        for number in range(10):
            scene.check(f"/{minute}/{number}")
            scene.check(f"/{number}")
        scene.clock.advance(60)
    assert 0 < len(scene.recorder._passing) <= 3
