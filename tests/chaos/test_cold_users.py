"""Users that no process has met, in crowds, before a whole service: each has its own tier, or the verdict says so."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from tests.integration.test_records_burst import burners
from tests.support.service import Service

from headgate.adapters.postgres import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.chaos.figures import Figures
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

USERS: Final = 2_000
"""Cold ones, for each size of batch."""
BATCHES: Final = (1, 2, 5, 20, 100, 500, 1_000, 2_000)
PREMIUM_EVERY: Final = 10
RULES: Final = """
tiers: {free: {limits: {api: 10/hour}}, premium: {limits: {api: 1000/hour}}}
default_tier: free
rules:
  - {name: api, per: [user], limits: "tier:api"}
"""
_LOAD: Final = """
INSERT INTO users (id, tier)
SELECT 'u' || number, CASE WHEN number % $1::int = 0 THEN 'premium' END FROM generate_series(0, $2::int - 1) number
"""
_CONNECTIONS: Final = 4_096


@pytest.fixture
def service(postgres: Postgres, valkey: Server, tmp_path: Path) -> Iterator[Service]:
    """A service with its rules, on a database of many users."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * _CONNECTIONS), most))
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    url = postgres.new_database()
    service = Service("--rules", str(rules), database_url=url, redis_url=valkey.url, data_dir=str(tmp_path))

    async def load() -> None:
        database = Database(url)
        async with database.use() as connection:
            await connection.execute(_LOAD, PREMIUM_EVERY, 2 * USERS * len(BATCHES))
        await database.close()

    try:
        asyncio.run(load())
        yield service
    finally:
        postgres.revive()
        service.close()


async def _check(service: Service, number: int) -> dict[str, Any]:
    """The verdict on one user, on a connection of its own."""
    url = httpx.URL(service.url)
    body = json.dumps({"user": f"u{number}", "path": "/api"}).encode()
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer: dict[str, Any] = json.loads(await reader.readexactly(length))
    finally:
        writer.close()
    return answer


async def _all(service: Service, numbers: Iterable[int], batch: int) -> Counter[tuple[bool, str | None]]:
    """How many verdicts were by the right limit or not, and marked or not."""
    found: Counter[tuple[bool, str | None]] = Counter()
    users = [*numbers]
    for start in range(0, len(users), batch):
        some = users[start : start + batch]
        verdicts = await asyncio.gather(*[_check(service, number) for number in some])
        for number, verdict in zip(some, verdicts, strict=True):
            right = verdict["limit"] == (1000 if number % PREMIUM_EVERY == 0 else 10)
            found[right, verdict.get("identity")] += 1
    return found


@pytest.mark.parametrize("busy", [0, 4])
def test_no_cold_user_gets_a_wrong_tier(
    service: Service, figures: Figures, say: Callable[[str], None], busy: int
) -> None:
    """With PostgreSQL healthy, 2,000 cold users in batches of 1 to 2,000 all get their own tiers, none assumed."""
    case = f"cold users, {busy} CPU burners"

    async def run() -> None:
        for place, batch in enumerate(BATCHES):
            say(f"batches of {batch}, {busy} burners")
            found = await _all(service, range(place * USERS, (place + 1) * USERS), batch)
            figures.check(case, f"wrong or assumed, batches of {batch}", USERS - found[True, None], "", 0)

    with burners(busy):
        asyncio.run(run())


def test_with_postgresql_frozen_every_assumed_verdict_is_marked(
    service: Service, postgres: Postgres, figures: Figures, say: Callable[[str], None]
) -> None:
    """Crowds of cold users are answered by the default tier, each marked; afterwards all have their own again."""
    case = "cold users, PostgreSQL frozen"

    async def run() -> None:
        assert await _all(service, range(100), 100) == {(True, None): 100}
        for place, batch in enumerate(BATCHES[4:], 1):
            users = range(place * USERS, (place + 1) * USERS)
            say(f"batches of {batch}, PostgreSQL frozen")
            postgres.freeze()
            began = time.perf_counter()
            found = await _all(service, users, batch)
            figures.note(case, f"{USERS} users in batches of {batch}", time.perf_counter() - began, "s")
            unmarked = sum(many for (_, identity), many in found.items() if identity != "assumed")
            figures.check(case, f"not marked, batches of {batch}", unmarked, "", 0)
            assert found[True, "assumed"] == USERS - USERS // PREMIUM_EVERY, "the default tier"
            postgres.thaw()
            while (await _check(service, users[0])).get("identity") == "assumed":  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.05)
            assert await _all(service, users, batch) == {(True, None): USERS}

    asyncio.run(run())
    samples = service.http.get("/metrics").text
    assert "headgate_identity_assumed_total" in samples
    service.wait_for_error("circuit open: the database of users and API keys is unavailable")
