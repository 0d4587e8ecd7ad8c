"""Replaying what was recorded: the same decisions, whatever decided them and wherever they were kept."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from headgate import Limiter, Request
from headgate.adapters import zones
from headgate.adapters.clock import monotonic, wall_clock
from headgate.adapters.event_json import JsonLines
from headgate.adapters.postgres import Database
from headgate.adapters.postgres.event_sink import PostgresEvents
from headgate.adapters.yaml_text import write_rule_set
from headgate.cli.commands import run as run_command
from headgate.core.event import EventBatch, EventKind, event_of
from headgate.core.own_limits import LimitsByRule, OwnLimits
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.thinning import EventBudget
from headgate.dataplane.recorder import Recorder
from headgate.simulate.simulation import Simulation
from headgate.simulate.traffic import COLUMNS, EventParser, Span
from headgate.wiring import parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.valkey import Server

    from headgate.core.event import Event
    from headgate.simulate.traffic import LoggedRequest

EVERYTHING: Final = {"sample": 1.0}
# The watched rule has one window in which everything lies: it is asked a moment after the others.
RULES: Final[dict[str, Any]] = {
    "default_tier": "free",
    "tiers": {"free": {"limits": {"api": "40/second"}}, "pro": {"limits": {"api": ["60/second", "500/hour"]}}},
    "rules": [
        {"name": "api", "per": "user", "limits": "tier:api", **EVERYTHING},
        {"name": "tenants", "per": "tenant", "layer": "t", "limits": "30/200ms", "algorithm": "fixed_window",
         "match": {"endpoints": ["/t"]}, **EVERYTHING},
        {"name": "log", "per": "api_key", "layer": "k", "limits": "15/300ms", "algorithm": "sliding_window_log",
         "match": {"endpoints": ["/log"]}, **EVERYTHING},
        {"name": "tokens", "per": ["user", "endpoint"], "layer": "e", "limits": "20/second burst 5",
         "algorithm": "token_bucket", "cost": {"POST": 3, "default": 1}, "match": {"endpoints": ["/tokens/{id}"]},
         **EVERYTHING},
        {"name": "leaky", "per": "ip", "layer": "l", "limits": "50/second", "algorithm": "leaky_bucket",
         "action": "throttle", "max_delay": "200ms", "match": {"endpoints": ["/leaky"]}, **EVERYTHING},
        {"name": "waiting", "per": "user", "layer": "l", "limits": "25/second", "algorithm": "token_bucket",
         "action": "throttle", "max_delay": "300ms", "match": {"endpoints": ["/waiting"]}, **EVERYTHING},
        {"name": "region", "per": "attribute:region", "layer": "r", "limits": "60/second",
         "match": {"attributes": {"beta": "yes"}}, **EVERYTHING},
        {"name": "year", "per": "user", "layer": "y", "limits": "5/calendar year", "algorithm": "fixed_window",
         "match": {"endpoints": ["/year"]}, **EVERYTHING},
        {"name": "watched", "per": "user", "layer": "w", "action": "log", "limits": "10/calendar year",
         "algorithm": "fixed_window", "match": {"endpoints": ["/watched"]}, **EVERYTHING},
        {"name": "shut", "action": "block", "match": {"endpoints": ["/shut"]}},
        {"name": "open", "action": "allow", "match": {"endpoints": ["/open"]}},
    ],
    "overrides": [{"user": "u1", "rule": "tokens", "limits": "9/second"}],
}  # fmt: skip
PATHS: Final = ("/", "/t", "/log", "/tokens/7", "/tokens/8?", "/leaky", "/waiting", "/year", "/shut")
KEPT: Final = {name: part for name, part in RULES.items() if name != "overrides"}
"""As a database keeps them: overrides are with the users there."""
SPAN: Final = Span(1, 1, 2**60)
UNTHINNED: Final = EventBudget(10**9, 10**9)


def _request(chance: random.Random) -> Request:
    own = OwnLimits(LimitsByRule({"api": "12/second"}), LimitsByRule({"log": ["4/second", "30/minute"]}))
    return Request(
        user=chance.choice(["u1", "u2", "u3", None]),
        tenant=chance.choice(["t1", None]),
        api_key=chance.choice(["k1", "k2"]),
        ip=chance.choice(["10.0.0.1", "2001:DB8::1"]),
        tier=chance.choice([None, "pro", "gone"]),
        method=chance.choice(["GET", "POST", None]),
        path=chance.choice(PATHS),
        attributes=chance.choice([{}, {"beta": "yes", "region": "eu"}]),
        route=chance.choice([None, "/route/{x}"]),
        cost=chance.choice([None, None, 2, 0]),
        limits=chance.choice([None, None, own]),
    )


async def _recorded(
    url: str, rules: dict[str, Any] = RULES, seed: int = 4, budget: EventBudget = UNTHINNED
) -> list[Event]:
    """Events of a limiter on a real clock, several checks at a time; what is remembered may name another rule."""
    chance = random.Random(seed)
    recorder = Recorder(wall_clock, monotonic, budget=budget)
    async with Limiter(*parts(url, rules, deny_cache_mb=0), observer=recorder) as limiter:
        for _ in range(60):
            requests = [_request(chance) for _ in range(chance.randrange(1, 40))]
            await asyncio.gather(*(limiter.check(each, chance.choice([None, None, None, 1, 4])) for each in requests))
            await asyncio.gather(*(limiter.check(Request(user="w2", tier="pro", path="/leaky")) for _ in range(3)))
            # Whatever is watched is asked of the store in a second trip, so it goes by itself.
            await limiter.check(Request(user="w1", tier="pro", path="/watched"))
            await limiter.check(Request(user="u1", path="/open"))
            await asyncio.sleep(chance.random() / 100)
        return recorder.take_events(is_last=True)


def _columns(event: Event) -> list[Any]:
    values = event._asdict() | {"server": "one"}
    return [values[name] for name in COLUMNS]


def _calls(events: Sequence[Event]) -> list[LoggedRequest]:
    calls = EventParser()
    return [calls.of(event.at, _columns(event)) for event in sorted(events, key=lambda each: (each.at, each.sequence))]


def _told(event: Event) -> tuple[Any, ...]:
    """All that an event says of a decision, except for its name and how long it took."""
    return event._replace(id="", latency=None)


def test_refusals_that_were_thinned_are_replayed_as_often_as_they_were_made() -> None:
    """An event that stands for several is decided several times, and under the same rules each of them is denied."""
    rules = {
        "rules": [{"name": "tight", "per": ["user"], "limits": "5/hour", "algorithm": "fixed_window", "sample": 1}]
    }
    few = EventBudget(first=2, overall=10_000)
    events = asyncio.run(_recorded("memory://", rules, budget=few))
    asked = sum(1 if event.extra is None else event.extra.get("stands_for", 1) for event in events)
    simulation = Simulation(("same", parse_rule_set(rules, zones.zone)), None, SPAN)
    simulation.replay.take(_calls(events))
    replay = simulation.replay
    assert (replay.requests, replay.repeated) == (asked, asked - len(events))
    assert asked > 2 * len(events)
    assert replay.draft_vs_recorded.different == 0


@pytest.mark.parametrize("kind", ["memory", "valkey"])
def test_a_replay_of_what_was_recorded_decides_everything_as_it_was(kind: str, valkey: Server) -> None:
    """Each event: the decision, the rule, what was counted and left, and how long to wait. On every store."""
    # With more patience than usual: what is decided without the store is not in its counters.
    events = asyncio.run(_recorded("memory://" if kind == "memory" else f"{valkey.url}?deadline_ms=30000"))
    assert {event.decision for event in events} == set(EventKind)
    assert {event.rule for event in events if event.decision == "denied"} >= {"api", "year"}
    simulation = Simulation(("same", parse_rule_set(RULES, zones.zone)), None, SPAN)
    replay = simulation.replay
    for event, call in zip(sorted(events, key=lambda each: (each.at, each.sequence)), _calls(events), strict=True):
        simulation.clock.now = call.at
        said = replay.draft.decide(call)
        assert said.verdict is not None
        again = event_of(event.sequence, call.request, None, said.verdict, said.kind, call.at, None)
        assert _told(again) == _told(event)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """What a limiter has recorded under the rules that a database keeps."""
    return asyncio.run(_recorded("memory://", KEPT))


def test_a_report_on_the_same_rules_finds_no_difference(events: list[Event]) -> None:
    """Neither to what was recorded nor to itself; the counts are those of the events."""
    rule_set = parse_rule_set(KEPT, zones.zone)
    replay = Simulation(("same", rule_set), ("same", rule_set), SPAN).replay
    replay.take(_calls(events))
    for beside in (replay.difference, replay.draft_vs_recorded, replay.against_vs_recorded):
        assert beside.different == 0
        assert beside.compared == len(events)
    assert replay.late == replay.undecidable == 0
    for each in EventKind:
        assert replay.draft.counts[each] == sum(event.decision == each for event in events)


async def _store(url: str, events: Sequence[Event]) -> None:
    """Into the table of events."""
    database = Database(url)
    stored = await PostgresEvents(database, wall_clock).store(EventBatch("b1", "one", "", list(events)))
    assert stored.stored == len(events)
    await database.close()


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    """The rules under which everything was recorded."""
    path = tmp_path / "rules.yaml"
    path.write_text(write_rule_set(KEPT), encoding="utf-8")
    return path


def test_events_are_replayed_from_the_database(
    database_url: str,
    events: list[Event],
    rules_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Beside the active rules too; other rules make a difference, and exit code 2."""
    asyncio.run(_store(database_url, events))
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)
    monkeypatch.setenv("HEADGATE_REDIS_URL", "memory://")
    assert run_command(["rules", "apply", str(rules_file), "--yes"]) == 0
    capsys.readouterr()
    assert run_command(["simulate", "--rules", str(rules_file), "--against", "current", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == found["recorded"]["draft"]["compared"] == len(events)
    for beside in (found["difference"], found["recorded"]["draft"], found["recorded"]["against"]):
        assert [beside[name] for name in ("newly_denied", "no_longer_denied", "otherwise")] == [0, 0, 0]
    draft = rules_file.with_name("draft.yaml")
    draft.write_text(rules_file.read_text("utf-8").replace("5/calendar year", "3/calendar year"), encoding="utf-8")
    assert run_command(["simulate", "--rules", str(draft), "--against", "current"]) == 2
    shown = capsys.readouterr().out
    assert "newly denied" in shown
    assert "year" in shown


def test_a_sample_of_admissions_is_said_first_and_not_compared(
    database_url: str,
    events: list[Event],
    rules_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exact counts show that there was more traffic than events: no comparison, unless it is asked for."""
    asyncio.run(_store(database_url, events))
    asyncio.run(_count(database_url, 100 * len(events)))
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)
    monkeypatch.setenv("HEADGATE_REDIS_URL", "memory://")
    draft = rules_file.with_name("draft.yaml")
    draft.write_text(rules_file.read_text("utf-8").replace("5/calendar year", "3/calendar year"), encoding="utf-8")
    sample = f"the events hold {len(events):,} of {100 * len(events):,} requests (1 %)"
    base = ["simulate", "--rules", str(draft)]
    assert run_command(base) == 0
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"A sample: {sample}: rules would deny more than is shown here")
    assert f"of {len(events):,} recorded requests would have been denied" in second
    assert not any("compared with" in line or line.startswith("demand") for line in rest)
    base += ["--against", str(rules_file)]
    assert run_command(base) == 1
    shown = capsys.readouterr()
    assert "newly denied" not in shown.out
    assert "not compared with --against, because the events are a sample; --sampled compares all the same" in shown.err
    assert run_command([*base, "--sampled", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["sampled"]["decided"] == 100 * len(events)
    assert found["difference"]["newly_denied"] > 0


async def _count(url: str, requests: int) -> None:
    """So many requests in a minute of the last hour."""
    database = Database(url)
    async with database.use() as connection:
        await connection.execute(
            "INSERT INTO metrics (at, granularity, total)"
            " VALUES (date_trunc('minute', now()) - interval '9 minutes', 'minute', $1)",
            requests,
        )
    await database.close()


def test_events_are_replayed_from_the_file_that_they_are_appended_to(
    events: list[Event], rules_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every one of them, each as it was."""
    path = rules_file.with_name("events.jsonl")

    async def run() -> None:
        sink = JsonLines(path)
        await sink.store(EventBatch("b1", "one", "", events))
        await sink.close()

    asyncio.run(run())
    assert run_command(["simulate", "--rules", str(rules_file), "--from", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["skipped"]["lines"] == 0
    recorded = found["recorded"]["draft"]
    assert recorded["compared"] == len(events)
    assert [recorded[name] for name in ("newly_denied", "no_longer_denied", "otherwise")] == [0, 0, 0]


def test_events_are_replayed_in_pages_of_any_size(
    database_url: str, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, in the order in which they were decided, also where many have the same time."""
    from headgate.simulate import sources as stored  # noqa: PLC0415 (patched below)

    coarse = [event._replace(at=event.at // 20_000 * 20_000) for event in events]
    asyncio.run(_store(database_url, coarse))
    monkeypatch.setattr(stored, "PAGE", 17)

    async def run() -> list[LoggedRequest]:
        database = Database(database_url)
        source = stored.StoredEvents(database, min(coarse).at, wall_clock())
        found = [call async for page in source.pages() for call in page]
        await database.close()
        assert source.share == 1.0
        return found

    found = asyncio.run(run())
    assert found == sorted(found, key=lambda call: call.order)
    assert len(found) == len(events) > 500
    assert sorted(call.recorded.sequence for call in found if call.recorded) == sorted(e.sequence for e in events)
