"""Who is asking, on a real PostgreSQL and a real Valkey."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.waiting import wait_until_async

from headgate import Limiter, Request
from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.adapters.postgres.records import PostgresRecords
from headgate.adapters.redis import store_at
from headgate.adapters.redis.cache import RedisCache
from headgate.core.api_key import hash_of, new_api_key
from headgate.settings import Settings
from headgate.wiring.identity import identity_from

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

    from headgate.dataplane.identity import Identity

KEY, REVOKED, EXPIRED = (new_api_key(bytes([number]) * 32) for number in range(3))
RULES = [{"name": "search", "per": "user", "limits": "5/minute"}]
_PEOPLE = """
INSERT INTO tiers (name) VALUES ('free'), ('pro');
INSERT INTO rules (name, data, updated_by) VALUES ('search', '{}', 'me');
INSERT INTO users (id, tier) VALUES ('u1', 'pro'), ('u2', NULL), ('it''s; "me"', 'free');
INSERT INTO overrides (user_id, rule, limits) VALUES ('u1', 'search', '{7/minute,70/hour}');
"""


@asynccontextmanager
async def people(url: str, cache: RedisCache | None = None) -> AsyncIterator[tuple[Identity, Database]]:
    """An identity on a database with a few users and keys, with deadlines as shipped."""
    database = Database(url)
    async with database.use() as connection:
        if not await connection.fetchval("SELECT count(*) FROM users"):
            await connection.execute(_PEOPLE)
            for key, extra in ((KEY, {}), (REVOKED, {"revoked": True}), (EXPIRED, {"expired": True})):
                await connection.execute(
                    "INSERT INTO api_keys (hash, prefix, user_id, tenant, tier, limits, created_by, revoked_at,"
                    " revoked_by, expires_at) VALUES ($1, 'hg_0', 'u2', 't2', 'pro', $2, 'me',"
                    " CASE WHEN $3 THEN now() END, CASE WHEN $3 THEN 'me' END, now() + $4 * interval '1 hour')",
                    *(hash_of(key), {"search": ["9/minute"]}, "revoked" in extra, -1 if "expired" in extra else 1),
                )
    identity = identity_from(Settings(), PostgresRecords(database), cache, wall_clock)
    await identity.start()
    try:
        yield identity, database
    finally:
        await identity.close()
        await database.close()


def limit(identity_request: Request) -> list[str]:
    """The limits that a request is decided by."""
    plan = Limiter.open(rules=RULES).snapshots.current.plan(identity_request)
    return [str(bound.hit.meter.limit) for bound in plan.enforced]


def test_users_and_keys_are_found_as_they_were_written(database_url: str) -> None:
    """Tier, overrides, owner and limits come from the tables; keys only while they hold."""

    async def run() -> None:
        async with people(database_url) as (identity, _):
            user = await identity.identify_trusted(Request(user="u1"))
            assert (user.tier, limit(user)) == ("pro", ["7/minute", "70/hour"])
            assert (await identity.identify_trusted(Request(user='it\'s; "me"'))).tier == "free"
            for unknown in ("u3", "' OR 1=1 --", "u1\n", "U1", "用户"):
                assert await identity.identify_trusted(Request(user=unknown)) == Request(user=unknown)
            key = await identity.identify_trusted(Request(api_key=KEY))
            assert (key.user, key.tenant, key.tier, limit(key)) == ("u2", "t2", "pro", ["9/minute"])
            assert key.api_key is not None
            assert len(key.api_key) == 36
            for text in (REVOKED, EXPIRED, new_api_key(b"x" * 32)):
                assert await identity.identify_trusted(Request(api_key=text)) == Request()
            assert identity.refused == {"revoked": 1, "expired": 1, "unknown": 1}

    asyncio.run(run())


def test_records_are_shared_between_processes(database_url: str, valkey: Server) -> None:
    """What one process has read, another finds without the database; a change that is dropped there is read anew."""

    async def run() -> None:
        store = store_at(valkey.url, None)
        cache = RedisCache(store)
        async with people(database_url, cache) as (identity, _):
            await identity.identify_trusted(Request(user="u1"))
            await identity.identify_trusted(Request(api_key=KEY))
            await wait_until_async(lambda: len(identity.records._tasks) == 0 if identity.records else False)
        async with people(database_url, RedisCache(store)) as (identity, database):
            async with database.use() as connection:
                await connection.execute("UPDATE users SET tier = 'free' WHERE id = 'u1'")
            assert (await identity.identify_trusted(Request(user="u1"))).tier == "pro", "from the cache"
            await cache.drop(["hg:user:u1"])
            identity.forget(["user:u1"])
            assert (await identity.identify_trusted(Request(user="u1"))).tier == "free"
            names = [name for name in str(valkey.ask("KEYS", "*")).split() if "hg:" in name]
            assert names
            assert KEY not in str(valkey.ask("KEYS", "*"))
        await store.close()

    asyncio.run(run())


def test_decisions_go_on_while_the_database_is_frozen(postgres: Postgres) -> None:
    """Known callers keep their limits, others get the default tier, all marked; afterwards all is as before."""

    async def run() -> None:
        limiter = Limiter.open(rules=RULES)
        async with people(postgres.new_database()) as (identity, _):
            records = identity.records
            assert records is not None
            assert (await identity.identify_trusted(Request(user="u1"))).tier == "pro"
            records.forget(["*"])  # so that it has to be read again
            postgres.freeze()
            try:
                for number in range(30):
                    known = await identity.identify_trusted(Request(user="u1", tier="free"))
                    assert (known.assumed, known.tier, limit(known)) == (True, "pro", ["7/minute", "70/hour"])
                    assert (await limiter.check(known)).identity == "assumed"
                    unknown = await identity.identify_trusted(Request(user=f"new{number}", tier="pro"))
                    assert unknown == Request(user=f"new{number}", assumed=True)
                assert not records.is_available
                found = await asyncio.gather(
                    *[identity.identify_trusted(Request(user=f"more{n}")) for n in range(1_000)]
                )
                assert all(request.assumed for request in found)
            finally:
                postgres.thaw()
            await wait_until_async(lambda: records.is_available)
            for _ in range(2):
                user = await identity.identify_trusted(Request(user="u1", tier="free"))
                assert (user.assumed, user.tier) == (False, "pro")
            assert await identity.identify_trusted(Request(user="new1", tier="pro")) == Request(user="new1", tier="pro")
            assert (await identity.identify_trusted(Request(api_key=KEY))).user == "u2"

    asyncio.run(run())


def test_what_is_shared_holds_no_secret(database_url: str) -> None:
    """The record of a key is what its hash leads to; the key itself is in none of it."""

    async def run() -> None:
        async with people(database_url) as (_, database):
            source = PostgresRecords(database)
            record = (await source.keys([hash_of(KEY)]))[hash_of(KEY)]
            await source.close()
            assert record["hash"] == hash_of(KEY).hex()
            assert KEY not in json.dumps(record)

    asyncio.run(run())
