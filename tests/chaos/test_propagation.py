"""Changes of rules while 16 processes check requests by them: how soon they are active, and never by halves."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.follower import Findings, Orders
from tests.chaos.load import share

from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryCache
from headgate.adapters.postgres import Database
from headgate.adapters.redis import feed_at
from headgate.adapters.zones import zone
from headgate.controlplane.notifier import Notifier
from headgate.controlplane.publisher import Publisher
from headgate.controlplane.rule_sets import RuleSetChanges
from headgate.controlplane.snapshot_history import SnapshotHistory

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Callable, Sequence

    from tests.chaos.figures import Figures
    from tests.support.valkey import Server

PROCESSES: Final = 16
CHANGES: Final = 500
ROLLBACKS: Final = 20
PAUSE: Final = 0.1
_ROOT: Final = Path(__file__).parents[2]


def rule_set(amount: int) -> dict[str, Any]:
    """Two layers with the same limit: a request that is given two different ones was decided by two rule sets."""
    rules = [{"name": name, "layer": name, "per": "user", "limits": f"{amount}/hour"} for name in ("one", "other")]
    return {"rules": rules}


async def _start(orders: Orders) -> Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.follower"),
        cwd=_ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(orders).encode() + b"\n")
    assert await process.stdout.readline() == b"ready\n"
    return process


async def _end(process: Process) -> Findings:
    assert process.stdin is not None
    process.stdin.close()
    output, _ = await process.communicate()
    assert process.returncode == 0
    return Findings(*json.loads(output))


class Admin:
    """The services of the process in which rules are published."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        publisher = Publisher(zone, wall_clock)
        self._announcer = notifier
        self._changes = RuleSetChanges(database, publisher, self._announce)
        self._history = SnapshotHistory(database, publisher, self._announce)
        self._at = 0.0
        self.committed: dict[int, float] = {}
        """When each snapshot was committed."""

    async def publish(self, amount: int) -> None:
        """Change both rules, in one go."""
        await self._changes.apply(rule_set(amount), "test")
        await self._note()

    async def go_back(self, number: int) -> None:
        """Activate an earlier snapshot again."""
        await self._history.rollback(number, "test")
        await self._note()

    async def _announce(self) -> None:
        self._at = time.time()
        await self._announcer.announce()

    async def _note(self) -> None:
        current = await self._history.current()
        assert current is not None
        self.committed[current.number] = self._at


@asynccontextmanager
async def admin(url: str, database_url: str) -> AsyncIterator[Admin]:
    database, feed = Database(database_url), feed_at(url)
    notifier = Notifier(database, feed, MemoryCache(wall_clock))
    repairing = asyncio.create_task(notifier.run())
    yield Admin(database, notifier)
    repairing.cancel()
    await asyncio.wait([repairing])
    await feed.close()
    await database.close()


def delays(committed: dict[int, float], findings: Sequence[Findings]) -> list[float]:
    """Seconds from each commit until each process was past it. An active one also replaces those it skipped."""
    seconds = []
    for found in findings:
        active = iter(found.active)
        number, at = next(active)
        for change, when in committed.items():
            while number < change:
                number, at = next(active)
            seconds.append(at - when)
    return seconds


def hold_together(findings: Sequence[Findings]) -> int:
    """How many requests were decided by a mixture of two rule sets, or by another than the verdict names."""
    seen: dict[int, set[tuple[int, int]]] = {}
    for found in findings:
        for number, first, second in found.limits:
            seen.setdefault(number, set()).add((first, second))
    return sum(len(limits) > 1 or any(first != second for first, second in limits) for limits in seen.values())


def test_changes_under_load(valkey: Server, database_url: str, figures: Figures, say: Callable[[str], None]) -> None:
    """500 changes are active in 16 busy processes within a second, as are rollbacks, and no request sees two."""
    case = f"{CHANGES} changes, {PROCESSES} processes"

    async def run() -> tuple[dict[int, float], dict[int, float], list[Findings]]:
        async with admin(valkey.url, database_url) as one:
            await one.publish(1_000_000)
            many = await asyncio.gather(*[_start(Orders(valkey.url, is_deaf=False)) for _ in range(PROCESSES)])
            one.committed.clear()
            for change in range(CHANGES):
                await one.publish(1_000_001 + change)
                if change % 100 == 0:
                    say(f"{change} of {CHANGES} changes")
                await asyncio.sleep(PAUSE)
            changes = dict(one.committed)
            one.committed.clear()
            for number in [*changes][-2 : -2 - ROLLBACKS : -1]:
                await one.go_back(number)
                await asyncio.sleep(PAUSE)
            await asyncio.sleep(3)
            return changes, one.committed, await asyncio.gather(*map(_end, many))

    changes, ways_back, findings = asyncio.run(run())
    figures.note(case, "load of the machine", os.getloadavg()[0], "")
    figures.note(case, "checks meanwhile", sum(found.checks for found in findings), "")
    figures.note(case, "of them by the store", sum(found.by_store for found in findings), "")
    seconds = delays(changes, findings)
    figures.note(case, "median, commit to active", 1000 * share(seconds, 0.5), "ms")
    figures.check(case, "p99, commit to active", 1000 * share(seconds, 0.99), "ms", 1000)
    figures.note(case, "longest, commit to active", 1000 * max(seconds), "ms")
    figures.check(case, "longest way back", 1000 * max(delays(ways_back, findings)), "ms", 1000)
    figures.check(case, "rule sets mixed", hold_together(findings), "", 0)
    assert sum(found.refused for found in findings) == 0


def test_lost_announcements(valkey: Server, database_url: str, figures: Figures) -> None:
    """Where no announcement arrives, changes are still active within five seconds."""
    case = f"announcements lost, {PROCESSES} processes"

    async def run() -> tuple[dict[int, float], list[Findings]]:
        async with admin(valkey.url, database_url) as one:
            await one.publish(1_000_000)
            many = await asyncio.gather(*[_start(Orders(valkey.url, is_deaf=True)) for _ in range(PROCESSES)])
            one.committed.clear()
            for change in range(20):
                await one.publish(1_000_001 + change)
                await asyncio.sleep(0.7)
            await asyncio.sleep(6)
            return one.committed, await asyncio.gather(*map(_end, many))

    changes, findings = asyncio.run(run())
    seconds = delays(changes, findings)
    figures.note(case, "median, commit to active", 1000 * share(seconds, 0.5), "ms")
    figures.check(case, "longest, commit to active", 1000 * max(seconds), "ms", 5000)
    figures.check(case, "rule sets mixed", hold_together(findings), "", 0)
