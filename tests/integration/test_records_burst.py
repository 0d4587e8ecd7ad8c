"""Callers that no process has in its cache, many at once: no tier is guessed while PostgreSQL answers."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest
import uvloop
from tests.support.fake_records import steady
from tests.support.waiting import wait_until_async

from headgate import Limiter, Request
from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.adapters.postgres.records import PostgresRecords
from headgate.adapters.redis import store_at
from headgate.adapters.redis.cache import RedisCache
from headgate.core.units import SECOND
from headgate.dataplane.lookups import AS_SHIPPED, Deadlines
from headgate.dataplane.records import Records
from headgate.settings import Settings
from headgate.wiring.identity import identity_from

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from multiprocessing.connection import Connection

    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

    from headgate.core.units import Micros
    from headgate.dataplane.identity import Identity

USERS: Final = 2_000
PREMIUM_EVERY: Final = 10
RULES: Final = {
    "tiers": {"free": {"limits": {"api": "10/hour"}}, "premium": {"limits": {"api": "1000/hour"}}},
    "default_tier": "free",
    "rules": [{"name": "api", "per": "user", "limits": "tier:api"}],
}
SHORT: Final = Deadlines(reply=0.02, connect=5.0)
_TIERS: Final = "INSERT INTO tiers (name) VALUES ('free'), ('premium')"
_USERS: Final = """
INSERT INTO users (id, tier)
SELECT 'u' || number, CASE WHEN number % $1::int = 0 THEN 'premium' END FROM generate_series(0, $2::int - 1) number
"""


@pytest.fixture(scope="module")
def users_url(postgres: Postgres) -> str:
    """A database of 2,000 users, of whom 200 are premium."""
    url = postgres.new_database()

    async def load() -> None:
        database = Database(url)
        async with database.use() as connection:
            await connection.execute(_TIERS)
            await connection.execute(_USERS, PREMIUM_EVERY, USERS)
        await database.close()

    asyncio.run(load())
    return url


@asynccontextmanager
async def process(
    url: str,
    redis_url: str | None = None,
    *,
    clock: Callable[[], Micros] = wall_clock,
    deadlines: Deadlines | None = None,
) -> AsyncIterator[Identity]:
    """An identity as a process has it that has just started, with deadlines as shipped unless others are given."""
    database = Database(url)
    store = None if redis_url is None else store_at(redis_url, None)
    cache = None if store is None else RedisCache(store)
    identity = identity_from(Settings(), PostgresRecords(database), cache, clock)
    if deadlines is not None:
        identity.records = Records(PostgresRecords(database), None, steady, deadlines=deadlines)
    await identity.start()
    try:
        yield identity
    finally:
        await identity.close()
        await database.close()
        if store is not None:
            await store.close()


async def wrong_tiers(identity: Identity, users: int, batch: int) -> int:
    """How many of so many cold users are decided by the limit of another tier, or assumed, in batches of one size."""
    limiter = Limiter.open(rules=RULES)
    wrong = 0
    for start in range(0, users, batch):
        numbers = range(start, min(start + batch, users))
        requests = await asyncio.gather(*[identity.identify_trusted(Request(user=f"u{number}")) for number in numbers])
        verdicts = await limiter.check_many(requests)
        wrong += sum(
            verdict.limit != (1000 if number % PREMIUM_EVERY == 0 else 10) or verdict.identity is not None
            for number, verdict in zip(numbers, verdicts, strict=True)
        )
    return wrong


def _burn() -> None:
    while True:
        pass


@contextmanager
def burners(many: int) -> Iterator[None]:
    """So many processes that do nothing but take processor time."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_burn, daemon=True) for _ in range(many)]
    for each in processes:
        each.start()
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.join()


@pytest.mark.serial
@pytest.mark.parametrize(
    ("batch", "users", "busy"),
    [(1, 200, 0), (20, 500, 0), (100, USERS, 0), (500, USERS, 0), (2_000, USERS, 0), (20, 200, 4), (2_000, USERS, 4)],
)
def test_cold_users_in_batches_all_get_their_own_tier(
    users_url: str, valkey: Server, batch: int, users: int, busy: int
) -> None:
    """With PostgreSQL healthy no cold user is given a wrong tier, by itself or in a crowd, beside CPU burners too."""

    async def run() -> None:
        for redis_url in (None, valkey.url):
            async with process(users_url, redis_url) as identity:
                assert await wrong_tiers(identity, users, batch) == 0
                assert identity.assumed == 0

    with burners(busy):
        asyncio.run(run())


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_frozen_database_marks_every_verdict_and_a_recovered_one_none(
    users_url: str, postgres: Postgres, run_loop: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Frozen, all of a crowd are answered by the default tier and marked; recovered, each has its own tier again."""

    async def run() -> None:
        async with process(users_url) as identity:
            assert identity.records is not None
            postgres.freeze()
            try:
                limiter = Limiter.open(rules=RULES)
                for _ in range(2):
                    requests = await asyncio.gather(
                        *[identity.identify_trusted(Request(user=f"u{n}")) for n in range(USERS)]
                    )
                    verdicts = await limiter.check_many(requests)
                    assert {(verdict.identity, verdict.limit) for verdict in verdicts} == {("assumed", 10)}
                    assert all(verdict.as_dict()["identity"] == "assumed" for verdict in verdicts)
                assert identity.assumed == 2 * USERS
                assert not identity.records.is_available
            finally:
                postgres.thaw()
            await wait_until_async(lambda: identity.records is not None and identity.records.is_available)
            assert await wrong_tiers(identity, USERS, USERS) == 0

    run_loop(run())


def test_the_last_record_known_is_in_redis_for_a_process_that_starts_anew(
    users_url: str, postgres: Postgres, valkey: Server
) -> None:
    """With PostgreSQL frozen a new process decides by what others have read, past its time, and marks it."""

    async def run() -> None:
        async with process(users_url, valkey.url) as identity:
            assert await wrong_tiers(identity, 20, 20) == 0
            assert identity.records is not None
            await wait_until_async(lambda: identity.records is not None and not identity.records._tasks)
        tomorrow = wall_clock() + 80_000 * SECOND
        postgres.freeze()
        try:
            async with process(users_url, valkey.url, clock=lambda: tomorrow) as identity:
                for user, tier in (("u10", "premium"), ("u10", "premium"), ("u11", None), ("u1999", None)):
                    request = await identity.identify_trusted(Request(user=user))
                    assert (request.tier, request.assumed) == (tier, True)
        finally:
            postgres.thaw()

    asyncio.run(run())


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_stalled_event_loop_is_no_evidence_against_the_database(
    users_url: str, run_loop: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """A program that blocks its loop for many deadlines, again and again, is answered rightly when it goes on."""

    async def run() -> None:
        async with process(users_url, deadlines=SHORT) as identity:

            async def stall() -> None:
                while True:
                    end = monotonic() + 4 * SHORT.reply
                    while monotonic() < end:
                        pass
                    await asyncio.sleep(0)

            stalling = asyncio.create_task(stall())
            assert await wrong_tiers(identity, 600, 200) == 0
            stalling.cancel()

    run_loop(run())


def _ask_until_told(url: str, pipe: Connection) -> None:
    async def run() -> None:
        async with process(url) as identity:
            pipe.send("ready")
            wrong = asked = 0
            while not pipe.poll() or not asked:
                wrong += await wrong_tiers(identity, 200, 20)
                identity.forget([f"user:u{number}" for number in range(200)])
                asked += 200
            pipe.send(wrong)

    asyncio.run(run())


def test_a_stopped_process_does_not_blame_the_database(users_url: str) -> None:
    """Stopped for longer than the deadline in the middle of look-ups and continued, it gives each caller its tier."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=_ask_until_told, args=(users_url, there), daemon=True)
    child.start()
    there.close()  # the child has its own: if it dies, `recv` fails instead of waiting
    try:
        assert here.recv() == "ready"
        assert child.pid is not None
        for _ in range(5):
            here.poll(0.02)
            os.kill(child.pid, signal.SIGSTOP)
            here.poll(1.5 * AS_SHIPPED.reply)
            os.kill(child.pid, signal.SIGCONT)
        here.send("end")
        assert here.recv() == 0
    finally:
        child.kill()
        child.join()


def test_connections_that_the_server_ended_are_made_again(users_url: str, postgres: Postgres) -> None:
    """A restart of a pooler, or an operator who ends sessions, costs no caller its tier."""
    ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headgate'"

    async def run() -> None:
        patient = Deadlines(reply=20.0, connect=20.0, abandon=30.0)  # a busy machine takes its time to connect
        async with process(users_url, deadlines=patient) as identity:
            assert await wrong_tiers(identity, 100, 100) == 0
            postgres.execute("postgres", ending)  # this process does not notice before it asks
            identity.forget([f"user:u{number}" for number in range(100)])
            assert await wrong_tiers(identity, 100, 100) == 0

    asyncio.run(run())


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_reply_is_seen_in_the_socket_before_it_is_read(
    users_url: str, postgres: Postgres, run_loop: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """The sockets of asyncpg's connections tell whether the server has said something, while the loop stands still."""

    async def run() -> None:
        database = Database(users_url)
        source = PostgresRecords(database)
        assert await source.users(["u0", "u1"]) == {
            "u0": {"tier": "premium", "overrides": None},
            "u1": {"tier": None, "overrides": None},
        }
        assert not source.has_unread()
        postgres.freeze()
        try:
            asking = asyncio.create_task(source.users(["u10"]))
            for _ in range(5):
                await asyncio.sleep(0.001)  # so that it is sent
            assert not source.has_unread()
        finally:
            postgres.thaw()
        while not source.has_unread():
            pass  # without giving the loop a turn
        assert (await asking)["u10"]["tier"] == "premium"
        assert not source.has_unread()
        await source.close()
        await database.close()

    run_loop(run())


def test_a_name_that_the_database_does_not_take_costs_no_other_its_record(users_url: str) -> None:
    """It is not on record, and the others of its query are found."""

    async def run() -> None:
        database = Database(users_url)
        source = PostgresRecords(database)
        assert [*await source.users(["u0", "bad\0name", "u1", "u2"])] == ["u0", "u1", "u2"]
        await source.close()
        await database.close()

    asyncio.run(run())
