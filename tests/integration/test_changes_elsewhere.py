"""A refund, a reset or a raised limit in another process, on a real server: admitted here within a second."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.support.other_process import KEY, REQUEST, OtherProcess
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until_async

from headgate import Limiter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AMOUNT: Final = 600
SPREADS: Final[dict[str, Any]] = {
    "exact": "exact",
    "leased": "leased",
    "auto": "auto",
    "shards": {"shards": 3},
    "central": {"regions": "central", "home": "eu"},
    "borrow": {"regions": "borrow", "home": "eu"},
}
PATIENT: Final = "deadline_ms=5000"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of the home region."""
    server = Server(tmp_path_factory.mktemp("home"), free_port())
    yield server
    server.kill()


def rules(mode: str, amount: int = AMOUNT) -> list[dict[str, Any]]:
    """One rule, spread so."""
    limits = f"{amount}/day"
    return [{"name": "all", "per": "global", "limits": limits, "algorithm": "fixed_window", "spread": SPREADS[mode]}]


async def used_up(limiter: Limiter) -> int:
    """Take until a refusal; returns how much was admitted."""
    admitted = 0
    while (await limiter.check(REQUEST)).allowed:
        admitted += 1
        await asyncio.sleep(0)
    return admitted


@pytest.mark.parametrize("mode", SPREADS)
def test_changes_of_another_process_are_admitted_within_a_second(
    valkey: Server, home: Server, tmp_path: Path, mode: str
) -> None:
    """However a limit is spread: this process is refused, another changes something, a second later it is admitted."""
    home.ask("FLUSHALL")
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"rules": rules(mode)}), encoding="utf-8")
    here, there = f"{valkey.url}?{PATIENT}", f"{home.url}?{PATIENT}"
    # The other process is in the home region, where there are regions; else both are on one server.
    is_far = mode in {"central", "borrow"}
    mine: dict[str, Any] = {"region": "us", "regions": {"eu": there}} if is_far else {}
    theirs: dict[str, Any] = {"region": "eu", "regions": {"us": here}, "url": there} if is_far else {"url": here}

    async def scenario(other: OtherProcess) -> None:
        clock = FakeClock()

        async def admits_after_a_second(amount: int | None = None) -> None:
            assert not (await limiter.check(REQUEST)).allowed, "it was known to be refused"
            if amount is not None:
                file.write_text(json.dumps({"rules": rules(mode, amount)}), encoding="utf-8")
                await wait_until_async(lambda: limiter.snapshots.current.number > 1)
            clock.advance(seconds=1)
            assert (await limiter.check(REQUEST)).allowed

        async with Limiter.open(here, file, clock=clock, **mine) as limiter:
            assert await asyncio.to_thread(other.do, "take")
            assert await used_up(limiter) == AMOUNT - 1
            assert await asyncio.to_thread(other.do, "refund")
            await admits_after_a_second()
            await used_up(limiter)
            assert await asyncio.to_thread(other.do, "reset")
            await admits_after_a_second()
            await used_up(limiter)
            await admits_after_a_second(AMOUNT + 100)

    with OtherProcess(rules=rules(mode), **theirs) as other:
        asyncio.run(scenario(other))


@pytest.mark.parametrize("spread", ["exact", "leased", "auto"])
def test_another_limit_of_a_key_is_admitted_at_once(valkey: Server, spread: str) -> None:
    """A key that is refused under one limit: another process resets it, or this one asks under a higher limit."""
    url = f"{valkey.url}?{PATIENT}&spread={spread}"

    async def scenario(other: OtherProcess) -> None:
        clock = FakeClock()
        async with Limiter.open(url, clock=clock) as limiter:
            assert await asyncio.to_thread(other.do, "take")
            admitted = 0
            while (await limiter.hit(KEY, f"{AMOUNT}/day")).allowed:
                admitted += 1
                await asyncio.sleep(0)
            assert admitted == AMOUNT - 1
            assert (await limiter.hit(KEY, f"{AMOUNT + 100}/day")).allowed
            assert not (await limiter.hit(KEY, f"{AMOUNT}/day")).allowed
            assert await asyncio.to_thread(other.do, "reset")
            clock.advance(seconds=1)
            assert (await limiter.hit(KEY, f"{AMOUNT}/day")).allowed

    with OtherProcess(url=url, limit=f"{AMOUNT}/day") as other:
        asyncio.run(scenario(other))
