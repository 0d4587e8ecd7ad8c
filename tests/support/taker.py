"""A process that takes requests of one limit until it is refused: ``python -m tests.support.taker '[URL, RULES]'``."""

from __future__ import annotations

import asyncio
import json
import sys

from headgate import Limiter, Request

_AT_ONCE = 16
_ENOUGH = 5
"""Refusals after which a task stops: others may have held units in flight at the first."""


async def _main(url: str, rules: dict[str, object]) -> int:
    admitted = 0
    async with Limiter.open(url, rules, deny_cache_mb=0) as limiter:

        async def task() -> None:
            nonlocal admitted
            refused = 0
            while refused < _ENOUGH:
                if (await limiter.check(Request(path="/"))).allowed:
                    admitted += 1
                else:
                    refused += 1

        await asyncio.gather(*[task() for _ in range(_AT_ONCE)])
    return admitted


if __name__ == "__main__":
    print(asyncio.run(_main(*json.loads(sys.argv[1]))))  # noqa: T201 (its answer)
