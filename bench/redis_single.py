"""One check at a time on Redis, against the round trip itself: the same script call, sent by hand."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import uvloop
from bench.hits import DEFAULT, PLENTY
from bench.measure import guard
from bench.peers import ALGORITHMS
from bench.rows import Better, Row

import headgate
from headgate.adapters.redis.address import ServerAddress
from headgate.adapters.redis.connection import execute, open_connection
from headgate.adapters.redis.scripts import script_call, take_script
from headgate.core.decision import Hit
from headgate.core.keys import hit_key
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bench.measure import Watch
    from bench.rows import Outcome
    from bench.server import Server

    from headgate.adapters.redis.connection import Command

_IN_A_ROW = 50
_ALLOWED = slice(8, 16)
"""Of a reply, behind its instant."""


def one_check(algorithm: str, key: str) -> Command:
    """The script call of one check, as `hit` sends it."""
    meter = Meter(parse_limit(f"{PLENTY}/day"), Algorithm(algorithm))
    hit = Hit(hit_key(key, meter.code), meter, 1)
    script, many, arguments = script_call([((hit,), None)], 0, 0, only_peek=False)  # type: ignore[list-item] # no caller waits for this one
    return ("EVALSHA", script.sha, many, *arguments)


def single_latency(server: Server, keys: Sequence[str], rounds: int, watch: Watch, outcome: Outcome) -> None:
    """The median of `await hit` against that of a bare ``EVALSHA``: one event loop, one kind of connection."""
    watch.begin("one at a time, beside a bare EVALSHA", len(ALGORITHMS))
    medians = {}
    for algorithm in ALGORITHMS:
        server.flush()
        server.ask("SCRIPT", "LOAD", take_script(frozenset([Algorithm(algorithm)])).text)
        ours, bare = uvloop.run(_latencies(server, algorithm, keys, rounds))
        medians[algorithm] = (median(ours) * 1e6, median(bare) * 1e6)
        watch.step()
    outcome.figures["single"] = [
        {"algorithm": algorithm, "ours": ours, "bare": bare} for algorithm, (ours, bare) in medians.items()
    ]
    against = f"a bare EVALSHA of the same script, {DEFAULT}"
    outcome.rows.append(Row("redis_single_latency", *medians[DEFAULT], "µs/check", against, Better.LOWER))


async def _latencies(
    server: Server, algorithm: str, keys: Sequence[str], rounds: int
) -> tuple[list[float], list[float]]:
    """The seconds of each check, ours and the bare ones, a few of each in turn."""
    commands = {key: one_check(algorithm, key) for key in keys}
    host, port = server.address
    connection = await open_connection(ServerAddress(host, port), lambda _: None)
    ours: list[float] = []
    bare: list[float] = []
    try:
        async with headgate.Limiter.open(f"{server.url}?on_store_error=deny&deadline_ms=1000") as limiter:
            hit, limit = limiter.hit, f"{PLENTY}/day"

            async def checked(key: str) -> bool:
                return (await hit(key, limit, algorithm=algorithm)).allowed

            async def called(key: str) -> bool:
                reply = await execute(connection, *commands[key])
                return isinstance(reply, bytes) and reply[_ALLOWED] == b"\x01".ljust(8, b"\x00")

            for turn in range(rounds + 1):
                for first in range(0, len(keys), _IN_A_ROW):
                    a_few = keys[first : first + _IN_A_ROW]
                    for kind, took in ((checked, ours), (called, bare)):
                        times = await _timed(kind, a_few)
                        if turn:  # the first round only warms up
                            took.extend(times)
    finally:
        connection.abort()
    return ours, bare


async def _timed(ask: Callable[[str], Awaitable[bool]], keys: Sequence[str]) -> list[float]:
    took, admitted = [], 0
    for key in keys:
        began = time.perf_counter()
        admitted += await ask(key)
        took.append(time.perf_counter() - began)
    guard("one at a time", admitted, len(keys))
    return took
