"""The part about cold users: the first request of users that no process has met, against the next ones of the same.

Both on one decision service with Redis and PostgreSQL, whose users have a tier on record. A user is cold once,
so each round has users of its own; the rounds of warm users come again and again from the same ones.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.http_load import load, request
from bench.rows import Outcome, Row
from bench.server import free_port, programs, running

from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Watch

PART = "cold_users"
COLD, WARM = "cold", "warm"
_TIERS = "INSERT INTO tiers (name) VALUES ('free'), ('premium')"
_USERS = """
INSERT INTO users (id, tier)
SELECT 'u_' || lpad(number::text, 10, '0'), CASE WHEN number % 10 = 0 THEN 'premium' ELSE 'free' END
FROM generate_series(0, $1::int - 1) number
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done. One run is `seconds` of requests on so many connections."""

    users: int = 600_000
    warm: int = 10_000
    seconds: float = 2.0
    connections: int = 64
    rounds: int = 5


QUICK = Scale(users=20_000, warm=64, seconds=0.1, connections=8, rounds=1)


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure this part; `quick` only shows that it works."""
    scale = QUICK if quick else Scale()
    rates: dict[str, list[float]] = {WARM: [], COLD: []}
    size = (scale.users - scale.warm) // (scale.rounds + 1)
    warm = _asked(0, scale.warm)
    with running(programs()[0]) as redis, tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        os.chmod(folder, 0o711)  # noqa: PTH101, S103 (PostgreSQL does not run as root, and has to get in)
        asyncio.run(_fill(Path(folder), scale.users))
        with _serving(folder, redis.url) as port:
            watch.begin("Cold users", (scale.rounds + 1) * len(rates))
            for number in range(scale.rounds + 1):
                for kind, asked in ((WARM, warm), (COLD, _asked(scale.warm + number * size, size))):
                    answers = len(load(port, asked, scale.seconds, scale.connections))
                    assert kind == WARM or answers < size, "some users were asked for twice"
                    rates[kind].append(answers / scale.seconds)
                    watch.step()
    found = {kind: rate[1:] for kind, rate in rates.items()}  # the first round only warms up
    against = "the next requests of users that the process has met"
    ratio = median(found[COLD]) / median(found[WARM])
    row = Row(PART, max(found[COLD]), max(found[WARM]), "checks/s", against, median_ratio=ratio)
    figures = [{"kind": kind, "rates": rate} for kind, rate in found.items()]
    return Outcome(PART, [row], {PART: figures})


def _asked(first: int, many: int) -> list[bytes]:
    return [request(f"u_{number:010}") for number in range(first, first + many)]


async def _fill(folder: Path, users: int) -> None:
    """Load the users behind the services' backs, which is sooner done."""
    opened = open_database(f"embedded://{folder}/postgres", folder)
    try:
        await migrate(opened.database)
        async with opened.database.use() as connection:
            await connection.execute(_TIERS)
            await connection.execute(_USERS, users)
            await connection.execute("VACUUM (ANALYZE) users")  # or the server does it in the middle of a round
            await connection.execute("CHECKPOINT")
    finally:
        await opened.close()


@contextmanager
def _serving(folder: str, redis_url: str) -> Iterator[int]:
    """A service of one process, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "bench.cold_users_server", folder, redis_url, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]) as process:  # noqa: S603 (our own)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "it has not started"
        try:
            yield port
        finally:
            process.terminate()
