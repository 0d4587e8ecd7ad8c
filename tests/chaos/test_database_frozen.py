"""PostgreSQL frozen while a whole service decides: callers see no difference."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import httpx
from tests.chaos.http_load import HttpLoad, Queues
from tests.chaos.load import share
from tests.support.service import Service

from headgate.adapters.postgres import Database
from headgate.adapters.zones import zone
from headgate.controlplane.keys import Keys
from headgate.controlplane.users import Users
from headgate.core.api_key import new_api_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.chaos.figures import Figures
    from tests.chaos.http_load import Answer
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

PER_SECOND: Final = 200
USERS: Final = 2_000
KEYS: Final = 500
UNKNOWN: Final = 200
PHASES: Final = (30, 30, 30, 30, 60, 120, 60)
"""Seconds, with the database there and away in turn, so that what else the machine does meets both alike."""
SLICE: Final = 5.0
TOKEN: Final = "a-token-of-the-test"  # noqa: S105 (used only here)
RULES: Final = [
    {"name": "api", "per": ["user"], "limits": "100000/hour"},
    {"name": "everything", "per": ["global"], "limits": "10000/second"},
]
_SECRETS: Final = [new_api_key(hashlib.sha512(b"%d" % number).digest()[:32]) for number in range(KEYS)]


async def _load(url: str) -> None:
    database = Database(url)
    await Users(database, zone).load([{"id": f"u{number}"} for number in range(USERS)], "test")
    rows = [{"user": f"u{number}", "secret": secret} for number, secret in enumerate(_SECRETS)]
    await Keys(database, zone).load(rows, "test")
    await database.close()


def _body(number: int) -> dict[str, Any]:
    """Six in ten are known users, two bring API keys, one is an unknown user, one only has an address."""
    turn, which = number % 10, number // 10
    if turn < 6:
        return {"user": f"u{(6 * which + turn) % USERS}", "path": "/api"}
    if turn < 8:
        return {"api_key": _SECRETS[(2 * which + turn) % KEYS], "path": "/api"}
    return {"user": f"unknown-{which % UNKNOWN}"} if turn == 8 else {"ip": f"203.0.113.{which % 250}"}


def _p99s(answers: Sequence[Answer], spans: Sequence[tuple[float, float]]) -> list[float]:
    """The p99 of each slice of some spans, the machine's own delays aside, in milliseconds."""
    beginnings = [start + SLICE * number for start, end in spans for number in range(int((end - start) / SLICE))]
    slices = [
        [answer.wait - answer.queued for answer in answers if at <= answer.asked < at + SLICE] for at in beginnings
    ]
    return [1000 * share(waits, 0.99) for waits in slices]


async def _until_a_change_is_active(service: Service) -> float:
    """Seconds until a user's limit, changed through the admin API, is what the service decides by."""
    began = time.perf_counter()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=30) as http:
        address = f"{service.admin_url}/v1/users/u7/overrides/api"
        while (await http.put(address, json={"limits": "7/hour"})).status_code != 200:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.1)
        question = f"{service.url}/v1/peek", {"user": "u7"}
        while (await http.post(question[0], json=question[1])).json()["limit"] != 7:  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.01)
    return time.perf_counter() - began


def test_frozen_while_serving(
    postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures, say: Callable[[str], None]
) -> None:
    """With PostgreSQL frozen for two minutes, a decision takes as long as before, and none fails."""
    case = f"PostgreSQL frozen, {PER_SECOND} checks/s"
    url = postgres.new_database()
    asyncio.run(_load(url))
    # A long deadline for Redis, which stays up: a slow answer of a busy machine is not a lost one.
    store = f"{valkey.url}?deadline_ms=1000"
    service = Service(database_url=url, redis_url=store, data_dir=str(tmp_path), admin_token=TOKEN)

    there: list[tuple[float, float]] = []
    away: list[tuple[float, float]] = []

    async def alternate() -> float:
        await asyncio.sleep(15)  # until every caller was seen once
        for number, seconds in enumerate(PHASES):
            is_frozen = number % 2
            postgres.freeze() if is_frozen else postgres.thaw()
            say(f"{seconds} s with PostgreSQL {'frozen' if is_frozen else 'up'}, load {os.getloadavg()[0]:.1f}")
            began = time.perf_counter()
            await asyncio.sleep(seconds)
            (away if is_frozen else there).append((began, time.perf_counter()))
        postgres.freeze()
        await asyncio.sleep(10)
        postgres.thaw()
        return await _until_a_change_is_active(service)

    async def run() -> tuple[HttpLoad, float]:
        with Queues(os.getpid(), service.main, valkey.pid) as queues:
            async with HttpLoad(service.url, _body, PER_SECOND, queues) as load:
                back = await alternate()
        return load, back

    try:
        for rule in RULES:
            assert service.admin.post("/v1/rules", json=rule).status_code == 201
        assert service.check(user="u1").status_code == 200  # so that all its threads are there
        load, back = asyncio.run(run())
    finally:
        postgres.revive()
        service.close()
    waits = {
        words: [answer.wait for start, end in spans for answer in load.between(start, end)]
        for words, spans in (("there", there), ("frozen", away))
    }
    figures.note(case, "checks", len(load.answers), "")
    figures.note(case, "load of the machine", os.getloadavg()[0], "")
    for words, some in waits.items():
        figures.note(case, f"median of waits, {words}", 1000 * share(some, 0.5), "ms")
        figures.note(case, f"p99 of waits, {words}", 1000 * share(some, 0.99), "ms")
        figures.note(case, f"longest wait, {words}", 1000 * max(some), "ms")
    before, meanwhile = (share(_p99s(load.answers, spans), 0.5) for spans in (there, away))
    figures.note(case, "p99 of 5 s, machine aside, there", before, "ms")
    figures.note(case, "p99 of 5 s, machine aside, frozen", meanwhile, "ms")
    wrong = Counter((answer.status, answer.source) for answer in load.answers) - Counter({(200, "store"): 10**9})
    assert not wrong, f"answers by status and source: {wrong}"
    assert not load.errors
    figures.check(case, "errors", len(load.errors) + wrong.total(), "", 0)
    figures.check(case, "p99 frozen, in p99 there", meanwhile / before, "", 1.1)
    figures.check(case, "a change active after thawing", back, "s", 5)
