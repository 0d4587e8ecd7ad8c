"""A user's quota, with the counters on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate import Limiter, Request
from headgate.dataplane.inspection import explain, quota, reset

if TYPE_CHECKING:
    from tests.support.valkey import Server


def rules(many: int) -> list[dict[str, Any]]:
    each = [
        {"name": f"r{number}", "per": "user", "limits": "5/hour", "match": {"endpoints": f"/{number}"}}
        for number in range(many)
    ]
    return [*each, {"name": "all", "limits": "1000/hour", "algorithm": "fixed_window"}]


def test_a_quota_is_what_the_server_has_counted(valkey: Server) -> None:
    """Hundreds of counters are looked at together; a reset forgets the user's own and leaves the shared one."""

    async def run() -> None:
        async with Limiter.open(valkey.url, rules(350)) as limiter:
            for _ in range(2):
                assert await limiter.check(Request(user="u1", path="/7"))
            before = [entry.as_dict() for entry in await quota(limiter, Request(user="u1"))]
            assert {entry["rule"]: entry["used"] for entry in before if entry["used"]} == {"r7": 2, "all": 2}
            assert len(before) == 351
            explained = await explain(limiter, Request(user="u1", path="/7"))
            assert explained["layers"][0]["winner"]["limits"][0]["remaining"] == 2
            assert await reset(limiter, Request(user="u1")) == 350
            after = [entry.as_dict() for entry in await quota(limiter, Request(user="u1"))]
            assert {entry["rule"]: entry["used"] for entry in after if entry["used"]} == {"all": 2}

    asyncio.run(run())
