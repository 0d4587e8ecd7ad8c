from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headgate import (
    HeadgateError,
    InvalidRules,
    InvalidSettings,
    Request,
    Rule,
    RuleSet,
    facade,
    parse_limit,
    parse_rule_set,
)
from headgate.adapters import clock
from headgate.adapters.clock import wall_clock
from headgate.adapters.embedded import EmbeddedStore
from headgate.adapters.memory import MemoryStore, WhenFull
from headgate.adapters.redis import RedisStore
from headgate.core.rule import Match, Override, Tier
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.leased import Leased
from headgate.dataplane.regional import Regional
from headgate.sync import Limiter
from headgate.testing import FakeClock
from headgate.wiring import blocking_store, layer, open_store, parts
from headgate.wiring.regions import Regions, regional


def test_memory_is_the_default() -> None:
    """``memory://`` needs nothing else: a million counters, and newcomers share when it is full."""
    for url in ("memory://", "memory:", "memory:///", "MEMORY://"):
        store = open_store(url)
        assert isinstance(store, MemoryStore)
        assert (store.table.max_counters, store.table.when_full) == (1_000_000, WhenFull.SHARE)


def test_memory_has_two_options() -> None:
    """How many counters there may be and what happens then is written in the address."""
    store = open_store("memory://?max_counters=100000&when_full=deny", FakeClock())
    assert isinstance(store, MemoryStore)
    assert (store.table.max_counters, store.table.when_full) == (100_000, WhenFull.DENY)
    assert store.clock() == FakeClock()()


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("embedded://", "data/valkey"),
        ("embedded:", "data/valkey"),
        ("embedded:///", "data/valkey"),
        ("embedded:///srv/counters", "/srv/counters"),
        ("embedded:///srv/c%23%20counters", "/srv/c# counters"),
    ],
)
def test_embedded_counters_have_a_folder(url: str, folder: str) -> None:
    """``embedded://`` keeps its counters in the data directory, or in the folder that it names; none is made yet."""
    store = open_store(url, data_dir=Path("data"))
    embedded = layer(store, EmbeddedStore)
    assert embedded is not None
    assert embedded.server.folder == Path(folder)
    assert not embedded.server.folder.exists()


def test_shares_of_limits_are_of_the_workers_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an outage from the start on, each of four workers enforces a quarter, with and without await."""
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    url = "redis://127.0.0.1:1?on_store_error=local"
    with Limiter.open(url) as limiter:
        assert [limiter.hit("never met", "8/day").allowed for _ in range(4)] == [True, True, False, False]

    async def scenario() -> None:
        async with facade.Limiter.open(url) as waiting:
            assert [(await waiting.hit("never met", "8/day")).allowed for _ in range(3)] == [True, True, False]

    asyncio.run(scenario())


def test_the_deny_cache_is_in_front_of_servers_only() -> None:
    """A store on a server has one unless it is switched off; one in this process is faster than it."""
    assert layer(open_store("redis://"), DenyCache) is not None
    assert layer(blocking_store("redis://"), DenyCache) is not None
    assert layer(open_store("redis://", deny_cache_mb=0), DenyCache) is None
    assert layer(blocking_store("redis://", deny_cache_mb=0), DenyCache) is None
    assert layer(open_store("memory://"), DenyCache) is None


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis+carrier-pigeon://x", "'redis\\+carrier-pigeon' is not a kind of store"),
        ("", "'' is not a kind of store"),
        ("localhost:6379", "'localhost' is not a kind of store"),
        ("memory://host", "memory:// takes no host and no path"),
        ("memory:///path", "memory:// takes no host and no path"),
        ("memory://#1", "memory:// takes no host and no path"),
        ("memory://?size=5", "memory:// has no option 'size'; it has max_counters and when_full"),
        ("memory://?max_counters=1&max_counters=2", "an option of memory:// appears twice"),
        ("memory://?max_counters=", "max_counters of memory:// is a whole number from 1 to"),
        ("memory://?max_counters=0", "max_counters of memory:// is a whole number from 1 to"),
        ("memory://?max_counters=-5", "max_counters of memory:// is a whole number from 1 to"),
        ("memory://?max_counters=1e6", "max_counters of memory:// is a whole number from 1 to"),
        ("memory://?max_counters=%D9%A1", "max_counters of memory:// is a whole number from 1 to"),
        ("memory://?max_counters=1000000001", "max_counters of memory:// is a whole number from 1 to"),
        (f"memory://?max_counters={'9' * 5000}", "max_counters of memory:// is a whole number from 1 to"),
        ("memory://?when_full=explode", "when_full of memory:// is one of share, deny, evict, not 'explode'"),
        ("memory://?when_full=", "when_full of memory:// is one of share, deny, evict, not ''"),
        ("embedded://counters", "write embedded:// or embedded:///path/to/folder"),
        ("embedded:counters", "write embedded:// or embedded:///path/to/folder"),
        ("embedded:///a?b", "write embedded:// or embedded:///path/to/folder"),
        ("embedded:///a#b", "write embedded:// or embedded:///path/to/folder"),
        ("embedded:///a%00b", "write embedded:// or embedded:///path/to/folder"),
        ("memory://[", "is not the address of a store"),
        (None, "is not the address of a store|is not a kind of store"),
        (5, "5 is not the address of a store"),
        (["memory://"], "is not the address of a store"),
    ],
)
def test_a_malformed_address_is_refused_with_a_sentence(url: Any, sentence: str) -> None:  # noqa: ANN401 (anything)
    """An address that names no store, or has options that do not exist, is refused in one short sentence."""
    with pytest.raises(InvalidSettings, match=sentence) as raised:
        open_store(url)
    assert len(str(raised.value)) < 200


def test_a_password_is_never_repeated() -> None:
    """An address that is not understood may hold a password, so it does not stand in the error."""
    for scheme in ("https", "embedded", "memory"):
        with pytest.raises(InvalidSettings) as raised:
            open_store(f"{scheme}://user:hunter2@example.com/?token=hunter2")
        assert "hunter2" not in str(raised.value)
        with pytest.raises(InvalidSettings) as raised:
            open_store(f"{scheme}://user:hunter2[@example.com")
        assert "hunter2" not in str(raised.value)


MAPPING: dict[str, Any] = {"rules": [{"name": "r", "limits": "1/hour"}]}


@pytest.mark.parametrize(
    "rules",
    [
        MAPPING,
        MAPPING["rules"],
        tuple(MAPPING["rules"]),
        parse_rule_set(MAPPING),
        [Rule("r", limits=(parse_limit("1/hour"),))],
        RuleSet((Rule("r", limits=(parse_limit("1/hour"),)),)),
    ],
    ids=["mapping", "list", "tuple", "rule set", "list of rules", "rule set of rules"],
)
def test_rules_in_every_form(rules: Any) -> None:  # noqa: ANN401 (every form)
    """Rules may be a mapping, a list of mappings or of rules, or a rule set; all mean the same."""
    gate = Limiter.open(rules=rules, clock=FakeClock())
    verdicts = [gate.check(Request()) for _ in range(2)]
    assert [verdict.allowed for verdict in verdicts] == [True, False]
    assert verdicts[0].receipts[0].key == "rl:{g=r}:r:sc1h"


def test_rules_made_in_python_are_checked() -> None:
    """A rule set put together by hand is read like a file: spelled in one way, complete, or refused."""
    match = Match(endpoints=("/login//",), methods=("post",))
    limits = (parse_limit("1/hour"),)
    gate = Limiter.open(rules=RuleSet((Rule("r", match=match, limits=limits),)), clock=FakeClock())
    assert gate.check(Request(path="/login", method="POST")).policy == "r"
    tiers = {name: Tier(name, {"api": (parse_limit(f"{amount}/hour"),)}) for name, amount in (("a", 1), ("b", 9))}
    overrides = (Override("r", (parse_limit("5/hour"),), user="u"), Override("r", limits, api_key="k"))
    gate = Limiter.open(rules=RuleSet((Rule("r", tier_limit="api"),), tiers, None, overrides), clock=FakeClock())
    asked = (Request(), Request(tier="b"), Request(user="u"), Request(api_key="k"))
    assert [gate.peek(request).limit for request in asked] == [1, 9, 5, 1]
    for rule in (Rule("r"), Rule("no name", limits=limits)):
        with pytest.raises(InvalidRules):
            Limiter.open(rules=RuleSet((rule,)))


def test_rules_from_a_file(tmp_path: Path) -> None:
    """Rules may be a file, named by a text or a path, in YAML or JSON."""
    for name, text in (
        ("a.yaml", "rules:\n- {name: r, limits: 1/hour}"),
        ("b.json", '[{"name":"r","limits":"1/hour"}]'),
    ):
        path = tmp_path / name
        path.write_text(text)
        for form in (path, str(path)):
            assert Limiter.open(rules=form).check(Request()).policy == "r"


def test_no_rules_at_all() -> None:
    """Without rules every request passes, under snapshot 0."""
    _, snapshots, _, follower = parts("memory://")
    assert (snapshots.current.number, follower) == (0, None)
    assert Limiter.open().check(Request()).allowed


@pytest.mark.parametrize(
    "rules",
    [
        5,
        True,
        {"rules": 5},
        [5],
        [None],
        [[]],
        {"rulez": []},
        {1: 2},
        b"rules.yaml",
        {"a"},
        object(),
        "",
        "a\0b",
        "x" * 5_000,
    ],
    ids=lambda rules: repr(rules)[:20],
)
def test_malformed_rules_are_refused(rules: Any) -> None:  # noqa: ANN401 (anything)
    """Whatever is given for rules, the answer is `InvalidRules` with a sentence."""
    with pytest.raises(InvalidRules) as raised:
        Limiter.open(rules=rules)
    assert isinstance(raised.value, HeadgateError)
    assert str(raised.value)


def test_one_bad_rule_and_none_is_loaded() -> None:
    """A rule set with one bad rule is refused as a whole, with everything that is wrong with it."""
    with pytest.raises(InvalidRules) as raised:
        Limiter.open(rules=[{"name": "good", "limits": "1/hour"}, {"name": "bad", "limits": "1"}, {"name": "bad"}])
    assert len(raised.value.problems) == 3


def test_blocking_stores_share_limits_with_the_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of several processes leases for one of so many, with an event loop and without."""
    monkeypatch.setenv("WEB_CONCURRENCY", "7")
    leased = layer(blocking_store("redis://127.0.0.1:1"), Leased)
    assert leased is not None
    assert leased.processes() == 7


def test_regions_run_on_a_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the wall clock does not prolong what is borrowed, or what was heard; it only dates answers."""
    shared = layer(open_store("redis://127.0.0.1:1"), RedisStore)
    assert shared is not None
    regions = Regions("eu", {"eu": "redis://127.0.0.1:1", "us": "redis://127.0.0.1:1"})
    store = regional(shared, regions, wall_clock)
    assert isinstance(store, Regional)
    before = store.clock()
    monkeypatch.setattr(clock, "clock_in_ns", lambda: 1_000)
    assert store.wall_clock() == 1
    assert before <= store.clock()
    fake = FakeClock()
    in_tests = regional(shared, regions, fake)
    assert isinstance(in_tests, Regional)
    assert in_tests.clock() == fake()


@pytest.mark.parametrize("opened", [Limiter.open, facade.Limiter.open])
@pytest.mark.parametrize("options", [{"region": "eu"}, {"regions": {"us": "redis://10.1.0.1"}}])
def test_memory_is_in_no_region(opened: Any, options: dict[str, Any]) -> None:  # noqa: ANN401 (both faces)
    """No other program counts there, so a region would have no effect: it is refused, not ignored."""
    with pytest.raises(InvalidSettings, match="region and regions have no effect on memory://"):
        opened("memory://", **options)
