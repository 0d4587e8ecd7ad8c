from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import TYPE_CHECKING

import pytest

from headgate import Limiter as AsyncLimiter
from headgate.adapters.rules_file import RulesFile
from headgate.adapters.zones import zone
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.regions import region_problems
from headgate.core.request import Request
from headgate.core.rule import RuleSet
from headgate.dataplane import limiter as async_limiter
from headgate.dataplane.snapshots import Follower, Snapshots
from headgate.errors import InvalidLimit, InvalidRules
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    write(path, "5/minute")
    return path


def write(path: Path, limit: str) -> None:
    """Replace the file as editors do, so that its identity changes whatever the clock of the disk says."""
    fresh = path.with_suffix(".new")
    fresh.write_text(f"rules:\n  - {{name: r, limits: {limit}}}\n")
    fresh.replace(path)


def following(path: Path) -> tuple[Follower, Snapshots]:
    snapshots = Snapshots(zone, FakeClock())
    return Follower(RulesFile(path), snapshots), snapshots


def limit(snapshots: Snapshots) -> str:
    return str(snapshots.current.rule_set.rules[0].limits[0])


def test_snapshots_are_numbered() -> None:
    """There are no rules at first, and every rule set published has the next number, or one of its own."""
    snapshots = Snapshots(zone, FakeClock())
    assert (snapshots.current.number, snapshots.current.rule_set) == (0, RuleSet())
    assert [snapshots.publish(RuleSet()).number for _ in range(3)] == [1, 2, 3]
    assert snapshots.current.number == 3
    assert [snapshots.publish(RuleSet(), number).number for number in (40, 7)] == [40, 7]


def test_what_this_process_cannot_do_is_not_published() -> None:
    """Rules that are right in themselves are refused where they cannot be kept, and the active ones stay."""
    regional = parse_rule_set({"rules": [{"name": "r", "limits": "5/minute", "spread": {"regions": "gossip"}}]})
    snapshots = Snapshots(zone, FakeClock(), lambda rule_set: region_problems(rule_set, None, []))
    active = snapshots.publish(RuleSet())
    with pytest.raises(InvalidRules, match=r"rules\[0\]\.spread: regions share this limit"):
        snapshots.publish(regional)
    assert snapshots.current is active
    reachable = Snapshots(zone, FakeClock(), lambda rule_set: region_problems(rule_set, "eu", ["us"]))
    assert reachable.publish(regional).rule_set is regional


def test_what_does_not_compile_is_not_published() -> None:
    """Rules that fail to compile are refused, and the active ones stay."""
    snapshots = Snapshots(zone, FakeClock())
    good = snapshots.publish(parse_rule_set([{"name": "r", "limits": "1/hour"}]))
    bad = parse_rule_set([{"name": "r", "limits": "1/calendar day tz No/Where", "algorithm": "fixed_window"}])
    with pytest.raises(InvalidLimit, match="No/Where"):
        snapshots.publish(bad)
    assert snapshots.current is good


def test_a_changed_file_is_picked_up(rules: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A rules file that changes on disk is active from the next look, and that is logged."""
    caplog.set_level(logging.INFO, "headgate")
    follower, snapshots = following(rules)
    assert not follower.poll()
    write(rules, "7/minute")
    assert follower.poll()
    assert (limit(snapshots), snapshots.current.number) == ("7/minute", 2)
    assert not follower.poll()
    assert caplog.messages == ["rules changed, snapshot 2 is active"]


def test_a_broken_file_is_refused_once(rules: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken rules file is refused with one line, the active rules stay, and a repaired one is taken."""
    follower, snapshots = following(rules)
    rules.write_text("rules:\n  - {name: r, limits: 5/fortnight}\n  - {nam: x}\n")
    for _ in range(3):
        assert not follower.poll()
    assert (limit(snapshots), snapshots.current.number) == ("5/minute", 1)
    (line,) = caplog.messages
    assert line.startswith("new rules refused, snapshot 1 stays active: ")
    assert f"{rules}:2: rules[0].limits: " in line
    assert f"{rules}:3: rules[1]" in line
    assert "\n" not in line
    assert follower.refused is not None
    assert "fortnight" in follower.refused
    write(rules, "8/minute")
    assert follower.poll()
    assert limit(snapshots) == "8/minute"
    assert not follower.refused


def test_rules_are_confirmed_by_every_look_that_finds_them_good(rules: Path) -> None:
    """It is known since when the rules are active, and when they were last known to be the newest."""
    clock = FakeClock()
    snapshots = Snapshots(zone, clock)
    follower = Follower(RulesFile(rules), snapshots)
    begun = clock()
    clock.advance(5)
    assert not follower.poll()
    assert (snapshots.since, follower.confirmed) == (begun, clock())
    rules.write_text("rules: 5")
    looked = clock()
    clock.advance(5)
    for _ in range(2):
        assert not follower.poll()
    assert (snapshots.since, follower.confirmed) == (begun, looked)
    write(rules, "8/minute")
    assert follower.poll()
    assert snapshots.since == follower.confirmed == clock()


def test_a_removed_file_changes_nothing(rules: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While the rules file is missing the active rules stay; when it exists again it is read."""
    follower, snapshots = following(rules)
    rules.unlink()
    for _ in range(2):
        assert not follower.poll()
    assert limit(snapshots) == "5/minute"
    (line,) = caplog.messages
    assert "cannot be read" in line
    write(rules, "9/minute")
    assert follower.poll()
    assert limit(snapshots) == "9/minute"


def test_a_broken_start_is_an_error(tmp_path: Path) -> None:
    """A limiter does not start with rules that are missing or broken."""
    missing = tmp_path / "missing.yaml"
    with pytest.raises(InvalidRules, match="cannot be read"):
        following(missing)
    missing.write_text("rules: 5")
    with pytest.raises(InvalidRules, match="rules"):
        following(missing)


class Source:
    """Rules from nowhere in particular."""

    def __init__(self) -> None:
        self.version = 0
        self.error: Exception | None = None
        self.loading = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def load(self) -> RuleSet:
        self.loading.set()
        assert self.go_on.wait(10)
        if self.error is not None:
            raise self.error
        return parse_rule_set([{"name": f"v{self.version}", "limits": "1/hour"}])

    def signature(self) -> object:
        return self.version


@pytest.mark.parametrize("error", [OSError("the disk is on fire"), RuntimeError("a mistake of ours"), MemoryError()])
def test_whatever_goes_wrong_the_old_rules_stay(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """New rules that fail to load in an unforeseen way are refused like any others."""
    source, snapshots = Source(), Snapshots(zone, FakeClock())
    follower = Follower(source, snapshots)
    source.version, source.error = 1, error
    assert not follower.poll()
    assert snapshots.current.rule_set.rules[0].name == "v0"
    assert len(caplog.messages) == 1
    assert follower.refused == str(error)


def test_two_threads_never_load_at_once() -> None:
    """While one thread is still loading, another does not load too, so older rules never replace newer ones."""
    source, snapshots = Source(), Snapshots(zone, FakeClock())
    follower = Follower(source, snapshots)
    source.version = 1
    source.loading.clear()
    source.go_on.clear()
    slow = threading.Thread(target=follower.poll)
    slow.start()
    assert source.loading.wait(10)
    source.version = 2
    assert not follower.poll()
    source.go_on.set()
    slow.join(10)
    assert follower.poll()
    assert snapshots.current.rule_set.rules[0].name == "v2"
    assert snapshots.current.number == 3


def test_a_verdict_names_the_snapshot_that_made_it(rules: Path) -> None:
    """A verdict keeps the number of the rules it was decided by, whatever is active later."""
    gate = AsyncLimiter.open(rules=rules, clock=FakeClock())

    async def main() -> list[int]:
        before = await gate.check(Request())
        write(rules, "9/minute")
        assert gate.follower is not None
        assert gate.follower.poll()
        after = await gate.check(Request())
        return [before.snapshot, after.snapshot]

    assert asyncio.run(main()) == [1, 2]


def test_an_open_limiter_follows_its_file(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ``async with`` a limiter looks at its rules file by itself, again and again, and stops when it is closed."""
    monkeypatch.setattr(async_limiter, "_SECONDS_BETWEEN_LOOKS", 0)

    async def main() -> str:
        gate = AsyncLimiter.open(rules=os.fspath(rules), clock=FakeClock())
        look = looks_of(gate, monkeypatch)
        async with gate:
            write(rules, "5/fortnight")
            await look()
            assert gate.follower is not None
            assert gate.follower.refused is not None
            write(rules, "6/minute")
            await look()
            following = gate._follower_task
        assert following is not None
        assert following.cancelled()
        await gate.close()
        return limit(gate.snapshots)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == "6/minute"


def looks_of(gate: AsyncLimiter, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Make the follower say when it has looked; returns how to wait for a look that began after the call."""
    assert gate.follower is not None
    poll, looked, loop = gate.follower.poll, asyncio.Event(), asyncio.get_running_loop()

    def poll_and_tell() -> bool:
        changed = poll()
        loop.call_soon_threadsafe(looked.set)
        return changed

    async def two_looks() -> None:
        for _ in range(2):
            looked.clear()
            await looked.wait()

    monkeypatch.setattr(gate.follower, "poll", poll_and_tell)
    return two_looks


def test_a_limiter_without_a_file_follows_nothing() -> None:
    """Rules given as Python objects are not watched."""

    async def main() -> None:
        async with AsyncLimiter.open(rules=[{"name": "r", "limits": "1/hour"}]) as gate:
            assert (gate.follower, gate._follower_task) == (None, None)

    asyncio.run(main())
