"""A second process that changes counters: ``python -m tests.support.other_process '{"url": …, "rules": …}'``.

It reads orders line by line and answers each: ``take`` takes a request (or hits a key), ``refund`` gives the last one
back, ``reset`` forgets the counter. Its clock is a fake one, as that of the test.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from headgate import Limiter, Request
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from headgate.core.verdict import Verdict

REQUEST = Request(user="ann", path="/")
KEY = "hot"


class OtherProcess:
    """The process, as the test sees it. Use it in ``with``."""

    def __init__(self, **options: object) -> None:
        """`options` are those of `Limiter.open`, and `limit` where a key is hit."""
        self._process = subprocess.Popen(  # noqa: S603 (our own)
            [sys.executable, "-m", __name__, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def do(self, order: str) -> bool:
        """Have it done; for ``take``, whether it was admitted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{order}: it has ended"
        return bool(json.loads(answer))

    def __enter__(self) -> Self:
        """It is there."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """It ends with its input."""
        self._process.communicate(timeout=60)


async def _main(options: dict[str, Any]) -> None:
    limit = options.pop("limit", None)
    taken: Verdict | None = None
    async with Limiter.open(clock=FakeClock(), **options) as limiter:
        while order := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if order == "take":
                taken = await (limiter.check(REQUEST) if limit is None else limiter.hit(KEY, limit))
            elif order == "refund":
                assert taken is not None
                await limiter.refund(taken)
            else:
                await (limiter.reset(REQUEST) if limit is None else limiter.reset(KEY, limit))
            print(json.dumps(order != "take" or (taken is not None and taken.allowed)), flush=True)  # noqa: T201 (its answer)


if __name__ == "__main__":
    asyncio.run(_main(json.loads(sys.argv[1])))
