"""How much of the server's core one process uses, and what our own connection gains over redis-py.

The reference is a client without client costs: commands packed beforehand, one check per
`EVALSHA`, written to a plain socket in chunks of 64, the next chunk before the answers to the
last are in, and answers that are counted by their length only. Where the server was busy all
the time, a client in C would get no more out of it. `INFO cpu` tells, and the row says it: on
a machine with other work, where it was not, the reference is too low and the ratio too good.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from struct import pack
from typing import TYPE_CHECKING

import hiredis
import redis.asyncio
from bench import loops
from bench.hits import DEFAULT, PLENTY
from bench.measure import guard, race
from bench.peers import ALGORITHMS, OURS
from bench.redis_hits import TASKS
from bench.redis_peers import async_contestants
from bench.redis_single import one_check
from bench.rows import pace
from bench.tasks import Tasks

import headgate
from headgate import wiring
from headgate.adapters.redis.factory import store_at
from headgate.adapters.redis.scripts import hand_out, script_call, take_script
from headgate.adapters.redis.store import RedisStore
from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bench.loops import AsyncLoop
    from bench.measure import Watch
    from bench.rows import Outcome
    from bench.server import Server

    from headgate.adapters.redis.scripts import Batch, Script
    from headgate.adapters.redis.topology import Shard

_CHUNK = 64
_ANSWER = len(b"$72\r\n") + 72 + len(b"\r\n")
"""Of one check: an instant and eight numbers of 8 bytes each."""


class PipelinedClient:
    """Sends the same checks again and again, and only counts the answers."""

    def __init__(self, server: Server, algorithm: str, keys: Sequence[str]) -> None:
        self._server = server
        self._socket = socket.create_connection(server.address, timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        commands = [hiredis.pack_command(one_check(algorithm, key)) for key in keys]
        self._chunks = [commands[first : first + _CHUNK] for first in range(0, len(commands), _CHUNK)]
        self._bytes = [(b"".join(chunk), len(chunk) * _ANSWER) for chunk in self._chunks]
        self.busy: list[float] = []
        """How much of its core the server used in each run."""
        server.ask("SCRIPT", "LOAD", _script(algorithm).text)
        self._check_answers()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _check_answers(self) -> None:
        """Stop unless every check of the first chunk is answered, and allowed."""
        reader = hiredis.Reader()
        sent, expected = self._bytes[0]
        self._socket.sendall(sent)
        reader.feed(self._received(expected))
        answers = [reader.gets() for _ in self._chunks[0]]
        allowed = pack("<q", 1)
        guard("the pipelined client", sum(answer[8:16] == allowed for answer in answers), len(self._chunks[0]))

    def _received(self, length: int) -> bytes:
        parts = []
        while length > 0:
            parts.append(self._socket.recv(65_536))
            length -= len(parts[-1])
        return b"".join(parts)

    def run(self) -> None:
        """Send everything once."""
        used, began = self._server.cpu_seconds(), time.perf_counter()
        owed = 0
        for sent, expected in self._bytes:
            self._socket.sendall(sent)
            owed -= len(self._received(owed))  # a part of what was sent just now may come with it
            owed += expected
        self._received(owed)
        self.busy.append((self._server.cpu_seconds() - used) / (time.perf_counter() - began))


def _script(algorithm: str) -> Script:
    return take_script(frozenset([Algorithm(algorithm)]))


def core_share(server: Server, keys: Sequence[str], rounds: int, watch: Watch, outcome: Outcome) -> None:
    """Our hits by 64 tasks against the pipelined client, with the same script and the same keys."""
    ours = {each.algorithm: each for each in async_contestants(server.url) if each.library == OURS}
    outcome.figures["core"] = []
    for algorithm in sorted(ALGORITHMS, key=lambda name: name != DEFAULT):
        server.flush()
        with ExitStack() as stack:
            tasks = stack.enter_context(Tasks(ours[algorithm].make(PLENTY)))
            client = PipelinedClient(server, algorithm, keys)
            stack.callback(client.close)
            runs: dict[str, Callable[[], object]] = {
                "ours": lambda tasks=tasks: guard(OURS, tasks.ask(keys, TASKS), len(keys)),
                "pipelined": client.run,
            }
            timings = race(f"core, {algorithm}", runs, len(keys), rounds, watch)
        busy = max(client.busy)
        against = f"pipelined EVALSHA, {algorithm}, server {busy:.0%} busy"
        is_default = algorithm == DEFAULT
        name = "redis_core_share" if is_default else f"redis_core_{algorithm}"
        row = pace(name, timings["ours"], timings["pipelined"], against)
        outcome.rows.append(row)
        outcome.figures["core"].append(
            {"algorithm": algorithm, "ours": row.ours, "pipelined": row.reference, "busy": busy}
        )


class ThroughRedisPy(RedisStore):
    """Our store with its batches, without its own connection: script calls go through redis-py."""

    def __init__(self, url: str) -> None:
        super().__init__(lambda: store_at(url).topology)
        self._client = redis.asyncio.Redis.from_url(url)
        self._calls: set[asyncio.Task[None]] = set()

    def send(
        self,
        batch: Batch,
        shard: Shard,  # noqa: ARG002 (one shard)
        *,
        only_peek: bool,
        replicas: int = 0,  # noqa: ARG002 (none)
        on_end: Callable[[int], None] | None = None,
    ) -> None:
        """See `RedisStore.send`."""
        script, keys, arguments = script_call(batch, 0, 0, only_peek=only_peek)

        async def call() -> None:
            hand_out(batch, await self._client.evalsha(script.sha.decode(), keys, *arguments))
            if on_end is not None:
                on_end(len(batch))

        task = asyncio.get_running_loop().create_task(call())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        await self._client.aclose()


@asynccontextmanager
async def _opened(store: RedisStore, url: str) -> AsyncIterator[AsyncLoop]:
    _, *others = wiring.parts(url)
    async with headgate.Limiter(store, *others) as limiter:
        yield loops.of_headgate_async(limiter, f"{PLENTY}/day", DEFAULT)


def own_connection(server: Server, keys: Sequence[str], rounds: int, watch: Watch, outcome: Outcome) -> None:
    """Our own connection against redis-py: 64 checks that travel as one call, and one check at a time."""
    server.flush()
    server.ask("SCRIPT", "LOAD", _script(DEFAULT).text)
    stores = {"own connection": store_at(server.url), "redis-py": ThroughRedisPy(server.url)}
    with ExitStack() as stack:
        opened = {name: stack.enter_context(Tasks(_opened(store, server.url))) for name, store in stores.items()}
        for row, tasks in (("own_connection_vs_redis_py_batched", TASKS), ("own_connection_vs_redis_py_single", 1)):
            runs = {name: partial(each.ask, keys, tasks) for name, each in opened.items()}
            timings = race(f"our own connection, {tasks} at once", runs, len(keys), rounds, watch)
            outcome.rows.append(pace(row, timings["own connection"], timings["redis-py"], "our store through redis-py"))
