"""What is decided under full load is stored exactly once, or known to be lost, whatever happens to the service."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from tests.chaos.hammer import Hammer
from tests.chaos.http_load import HttpLoad, Queues
from tests.chaos.kafka_broker import Broker
from tests.chaos.load import share
from tests.support.kafka_topic import records_of
from tests.support.service import Service
from tests.support.stored_counts import billed

from headgate.adapters.postgres import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos.figures import Figures
    from tests.chaos.http_load import Answer
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

_FULL: Final = os.environ.get("CHAOS") == "full"
EVENTS: Final = 100_000 if _FULL else 10_000
TIMES: Final = 20 if _FULL else 2
SECONDS_AWAY: Final = 120 if _FULL else 20
PAIRS: Final = 10 if _FULL else 2
PER_SECOND: Final = 400
SMALL: Final = 2**20
"""Bytes of a spool that is full within seconds."""
FLUSH: Final = 0.5
RULES: Final = "rules:\n  - {name: tight, per: [user], limits: 5/minute, sample: 1}\n"
_ACCOUNT: Final = re.compile(
    r"events to (\w+): (\d+) emitted = (\d+) stored \+ (\d+) spooled \+ (\d+) dropped \+ (\d+) refused"
)
_PATIENCE: Final = 120.0
_SECONDS_EACH: Final = 8.0
_SECONDS_TO_CATCH_UP: Final = 5.0


def _service(postgres_url: str, store: str, folder: Path, *options: str, **settings: str) -> Service:
    rules = folder / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    # Patient with Redis: a busy machine is not to be taken for a lost answer.
    given = {"database_url": postgres_url, "redis_url": f"{store}?deadline_ms=1000", "data_dir": str(folder / "data")}
    given |= {"denial_events_per_minute": "1000000000", "events_per_minute": "1000000000"}  # every decision is an event
    return Service("--rules", str(rules), *options, flush_seconds=str(FLUSH), **given, **settings)


def _stored(url: str) -> list[str]:
    """The ids of all events."""

    async def run() -> list[str]:
        database = Database(url, seconds=_PATIENCE)
        async with database.use() as connection:
            rows = await connection.fetch("SELECT id FROM events")
        await database.close()
        return [row["id"] for row in rows]

    return asyncio.run(run())


def _used(url: str) -> int:
    """How many requests would be billed."""

    async def run() -> int:
        database = Database(url, seconds=_PATIENCE)
        requests = await billed(database)
        await database.close()
        return requests.total()

    return asyncio.run(run())


def _ended(service: Service) -> tuple[int, int, int, int, int]:
    """Its account of the database, once it has ended in order."""
    return _accounts(service)["postgres"]


def _accounts(service: Service) -> dict[str, tuple[int, int, int, int, int]]:
    """By sink: emitted, stored, spooled, dropped and refused."""
    _, errors = service.process.communicate(timeout=_PATIENCE)
    assert service.process.returncode == 0
    found = {name: tuple(map(int, numbers)) for name, *numbers in _ACCOUNT.findall(errors.decode())}
    assert found, errors.decode()
    return found  # type: ignore[return-value] # five of each, as the pattern has them


def _left_by_another(service: Service) -> int:
    """What is still spooled after a service has started and ended."""
    service.signal(signal.SIGTERM)
    return _ended(service)[2]


async def _hammered(service: Service, how: signal.Signals) -> tuple[Hammer, float]:
    async with Hammer(service.url) as hammer:
        await hammer.until(EVENTS)
        await asyncio.sleep(2 * FLUSH)  # on a quick machine nothing would be on disk yet
        service.signal(how)
        ended = time.monotonic()
    return hammer, ended


def test_sigterm_under_full_load(
    postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures, say: Callable[[str], None]
) -> None:
    """Whatever was answered before a service with two workers has ended is stored, once."""
    case = f"SIGTERM under load, {TIMES} x {EVENTS:,} events"
    answered = lost = twice = differ = 0
    for turn in range(TIMES):
        url = postgres.new_database()
        service = _service(url, valkey.url, tmp_path, "--workers", "2")
        hammer, told = asyncio.run(_hammered(service, signal.SIGTERM))
        emitted, stored, spooled, dropped, refused = _ended(service)
        took = time.monotonic() - told
        while spooled:  # the time for the end was over, on a busy machine
            say(f"{spooled:,} of {emitted:,} are left for the next start")
            spooled = _left_by_another(_service(url, valkey.url, tmp_path))
        ids = _stored(url)
        answered += len(hammer.answers)
        lost += len({answer.id for answer in hammer.answers} - set(ids))
        twice += len(ids) - len(set(ids))
        differ += abs(len(ids) - _used(url))
        say(f"{turn + 1} of {TIMES}: {len(hammer.answers):,} answered, {len(ids):,} stored, ended in {took:.1f} s")
        assert (emitted, dropped, refused) == (len(ids), 0, 0)
        assert stored <= emitted
        assert len(ids) <= len(hammer.answers) + hammer.unanswered
    figures.note(case, "answered", answered, "")
    figures.check(case, "events and usage differ by", differ, "", 0)
    figures.check(case, "lost", lost, "", 0)
    figures.check(case, "stored twice", twice, "", 0)


def test_sigkill_under_full_load(
    postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures, say: Callable[[str], None]
) -> None:
    """A service that is killed loses one flush at most, which was not on disk. The next one stores the rest, once."""
    case = f"SIGKILL under load, {TIMES} x {EVENTS:,} events"
    oldest, lost, answered, differ = 0.0, 0, 0, 0
    for turn in range(TIMES):
        url = postgres.new_database()
        service = _service(url, valkey.url, tmp_path)
        hammer, killed = asyncio.run(_hammered(service, signal.SIGKILL))
        service.process.communicate(timeout=_PATIENCE)
        while _left_by_another(_service(url, valkey.url, tmp_path)):
            pass
        ids = _stored(url)
        assert len(ids) == len(set(ids))
        gone = _missing(hammer, ids)
        age = max([0.0, *(killed - at for at in gone)])
        oldest = max(oldest, age)
        lost, answered = lost + len(gone), answered + len(hammer.answers)
        differ = max(differ, abs(len(ids) - _used(url)))
        found = f"{len(hammer.answers):,} answered, {len(ids):,} stored, {len(gone):,} lost, {age:.2f} s old"
        say(f"{turn + 1} of {TIMES}: {found}")
    figures.note(case, "answered", answered, "")
    figures.note(case, "lost", lost, "")
    figures.note(case, "events and usage differ by, at most", differ, "")
    # Half a second for a flush that was in flight, and for a busy machine.
    figures.check(case, "age of the oldest that was lost", oldest, "s", FLUSH + 0.5)


def _missing(hammer: Hammer, ids: list[str]) -> list[float]:
    """When each of the answers came that are not stored."""
    stored = set(ids)
    return [answer.at for answer in hammer.answers if answer.id not in stored]


def _p99(answers: list[Answer], span: tuple[float, float], *, plain: bool = False) -> float:
    """In milliseconds, the machine's own delays aside unless it is `plain`."""
    start, end = span
    within = [answer for answer in answers if start <= answer.asked < end]
    return 1000 * share([answer.wait - (0 if plain else answer.queued) for answer in within], 0.99)


def _body(number: int, path: str) -> dict[str, str]:
    return {"user": f"u{number % 20}", "path": path}


class _Outcome(NamedTuple):
    """What came of a load while something was there and away in turn; where spans are several, the median counts."""

    load: HttpLoad
    there: float
    """The p99 of decisions in milliseconds, without the time for which the machine ran something else."""
    away: float
    ratio: float
    """How many times the p99 there is that away, of spans beside each other."""
    long: float
    """The same of the long time away and what was before and behind it."""
    plain: float
    """As `ratio`, with all that the callers waited."""


async def _alternating(
    service: Service, server: int, take_away: Callable[[], object], bring_back: Callable[[], object], path: str = "/"
) -> _Outcome:
    """A steady load: something is there and away in turn, away for long, and there and away in turn again.

    So neither has a better time: the machine is quicker or slower for minutes. After recovery, what has waited for
    it is stored first: that is no part of either.
    """
    there: list[tuple[float, float]] = []
    away: list[list[tuple[float, float]]] = []
    long = PAIRS // 2 - 1
    with Queues(os.getpid(), service.main, server) as queues:
        async with HttpLoad(service.url, lambda number: _body(number, path), PER_SECOND, queues) as load:
            await asyncio.sleep(3)
            for turn in range(PAIRS):
                bring_back()
                await asyncio.sleep(_SECONDS_TO_CATCH_UP)
                there.append(await _span())
                take_away()
                away.append([await _span() for _ in range(int(SECONDS_AWAY / _SECONDS_EACH) if turn == long else 1)])
            bring_back()
            await asyncio.sleep(2)
    there_each, away_each = _each(load, [[span] for span in there]), _each(load, away)
    plain = zip(*(_each(load, spans, plain=True) for spans in ([[span] for span in there], away)), strict=True)
    return _Outcome(
        load,
        median(there_each),
        median(away_each),
        median(gone / here for here, gone in zip(there_each, away_each, strict=True)),
        away_each[long] / median(there_each[long : long + 2]),
        median(gone / here for here, gone in plain),
    )


def _each(load: HttpLoad, turns: list[list[tuple[float, float]]], *, plain: bool = False) -> list[float]:
    """The p99 of each turn: the median of its spans."""
    return [median(_p99(load.answers, span, plain=plain) for span in spans) for spans in turns]


async def _span() -> tuple[float, float]:
    began = time.perf_counter()
    await asyncio.sleep(_SECONDS_EACH)
    return began, time.perf_counter()


def _measured(
    figures: Figures,
    case: str,
    service: Service,
    outcome: _Outcome,
    stored_in: Callable[[], list[str]],
    sink: str = "postgres",
) -> tuple[int, int, int, int, int]:
    """End the service, and hold its account against what was answered (and one before) and what is stored."""
    load, there, away, ratio, long, plain = outcome
    service.signal(signal.SIGTERM)
    account = emitted, stored, spooled, dropped, refused = _accounts(service)[sink]
    ids = stored_in()
    assert not load.errors
    figures.note(case, "p99 of decisions, there", there, "ms")
    figures.note(case, "p99 of decisions, away", away, "ms")
    figures.note(case, "p99 away, in p99 there", ratio, "")
    figures.note(case, "the same of the long time away", long, "")
    figures.note(case, "the same, with delays of the machine", plain, "")
    figures.note(case, "dropped", dropped, "")
    figures.check(case, "answers without an account", abs(len(load.answers) + 1 - emitted), "", 0)
    figures.check(case, "events beside the account", abs(len(ids) - stored), "", 0)
    assert len(ids) == len(set(ids))
    assert emitted == stored + spooled + dropped + refused
    assert spooled == refused == 0
    return account


@pytest.mark.parametrize("limit", [SMALL, 2**30])
def test_frozen_database(postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures, limit: int) -> None:
    """With PostgreSQL frozen decisions go on; what the spool has room for is stored, what it has not is counted."""
    case = f"sink frozen {SECONDS_AWAY} s, spool of {limit // 2**20} MiB"
    path = "/" + "x" * 2_000 if limit == SMALL else "/"
    url = postgres.new_database()
    service = _service(url, valkey.url, tmp_path, spool_limit=str(limit))
    try:
        assert service.check(user="u0").status_code == 200  # so that all its threads are there
        outcome = asyncio.run(_alternating(service, valkey.pid, postgres.freeze, postgres.thaw, path))
        account = _measured(figures, case, service, outcome, lambda: _stored(url))
    finally:
        postgres.revive()
        service.close()
    assert (account[3] > 0) is (limit == SMALL)


def test_frozen_broker(
    postgres: Postgres, valkey: Server, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, figures: Figures
) -> None:
    """With Kafka frozen decisions go on, PostgreSQL has every event, and the topic gets each once after recovery."""
    case = f"Kafka frozen {SECONDS_AWAY} s"
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.make_topic("events")
    url = postgres.new_database()
    service = _service(url, valkey.url, tmp_path, kafka_brokers=broker.servers, kafka_topic="events")

    def sent() -> list[str]:
        assert len(_stored(url)) == len(outcome.load.answers) + 1
        return [json.loads(record.value)["id"] for record in records_of(broker.servers, "events")]

    try:
        assert service.check(user="u0").status_code == 200
        outcome = asyncio.run(_alternating(service, valkey.pid, broker.freeze, broker.thaw))
        account = _measured(figures, case, service, outcome, sent, "kafka")
    finally:
        broker.thaw()
        service.close()
        broker.kill()
    assert account[3] == 0


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    """A disk of its own, for those who may mount one."""
    place.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(place)], check=False)  # noqa: S603, S607 (ours)
    if mounted.returncode:
        pytest.skip("this user may not mount a disk; tests/unit/adapters/test_spool.py plays one that is full")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S603, S607 (as above)


@pytest.mark.parametrize("length", [0, 4_000])
def test_full_disk(postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures, length: int) -> None:
    """With no room for the spool decisions go on, and events wait in memory; what is too much for it is counted."""
    case = f"spool's disk full {SECONDS_AWAY} s, paths of {length:,} characters"
    path = "/" + "x" * length
    url = postgres.new_database()
    place = tmp_path / "data" / "spool"
    ballast = place / ".ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    continue

    with _small_disk(place):
        service = _service(url, valkey.url, tmp_path)
        try:
            assert service.check(user="u0").status_code == 200
            outcome = asyncio.run(
                _alternating(service, valkey.pid, fill, lambda: ballast.unlink(missing_ok=True), path)
            )
            account = _measured(figures, case, service, outcome, lambda: _stored(url))
        finally:
            service.close()
    assert (account[3] > 0) is (length > 0)
