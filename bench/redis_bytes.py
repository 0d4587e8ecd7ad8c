"""What counters cost in the server's memory.

Filling a server with a million keys through a library takes minutes. So every library
makes one check, the server tells (`MONITOR`) which commands came of it, and the same commands
are sent again, pipelined, for a million other users: each key is written by the library's
own script or commands.
"""

from __future__ import annotations

import codecs
import re
import socket
import time
from typing import TYPE_CHECKING

import hiredis
from bench.measure import guard
from bench.peers import LOG, OURS
from bench.redis_peers import async_contestants
from bench.rows import Better, Row
from bench.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Watch
    from bench.redis_peers import AsyncConnected
    from bench.rows import Outcome
    from bench.server import Server

_USER = b"u_0000000000"
_FULL = 1_000
_LASTING = 100
"""A day's limit under which one unit is not back before a quarter of an hour, so that no bucket is forgotten."""
_AT_ONCE = 500
_SEEN = b"that is all"
_COMMAND = re.compile(rb"\+[0-9.]+ \[\d+ (?!lua)[^\]]*\] (.*)")
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')


def counters(server: Server, few: int, many: int, watch: Watch, outcome: Outcome) -> Row:
    """Bytes per key: all competitors with a few keys, then our largest and the leanest peer with many."""
    competitors = [each for each in _with_one_client(server) if not each.keeps_log]
    watch.begin(f"bytes per key, {server.name}", len(competitors) + 2)
    server.ask("CONFIG", "SET", "slowlog-log-slower-than", -1)  # what is noted of slow commands is no key
    sizes = {each.name: _bytes_per_key(server, each, few, watch) for each in competitors}
    _note("bytes per key", server, competitors, sizes, outcome)
    by_size = sorted(competitors, key=lambda each: sizes[each.name])
    ours = [each for each in by_size if each.library == OURS][-1]
    leanest = next(each for each in by_size if each.library != OURS)
    paid, least = (_bytes_per_key(server, each, many, watch) for each in (ours, leanest))
    against = f"{leanest.name} (ours: {ours.algorithm}), {many:,} keys, {server.name}"
    return Row("redis_bytes_counter", paid, least, "bytes/key", against, Better.LOWER)


def log(server: Server, watch: Watch, outcome: Outcome) -> Row:
    """Bytes of a log that holds all of its 1,000 admissions."""
    exact = [each for each in _with_one_client(server) if each.algorithm == LOG]
    watch.begin(f"bytes of a log, {server.name}", len(exact))
    sizes = {each.name: _bytes_of_log(server, each, watch) for each in exact}
    _note("bytes of a log", server, exact, sizes, outcome)
    leanest = min((each for each in exact if each.library != OURS), key=lambda each: sizes[each.name])
    ours = next(each for each in exact if each.library == OURS)
    against = f"{leanest.name}, {server.name}"
    return Row("redis_bytes_log", sizes[ours.name], sizes[leanest.name], "bytes", against, Better.LOWER)


def _with_one_client(server: Server) -> list[AsyncConnected]:
    """All competitors; limits once only, since what it writes does not depend on its client."""
    return [each for each in async_contestants(server.url) if not each.variant.endswith("valkey-py")]


def _note(
    table: str, server: Server, competitors: list[AsyncConnected], sizes: dict[str, float], outcome: Outcome
) -> None:
    outcome.figures.setdefault(table, []).extend(
        {
            "server": server.name,
            "library": each.library,
            "algorithm": each.algorithm,
            "variant": each.variant,
            "bytes": sizes[each.name],
        }
        for each in competitors
    )


def _bytes_of_log(server: Server, contestant: AsyncConnected, watch: Watch) -> float:
    server.flush()
    with Tasks(contestant.make(_FULL)) as limiter:
        guard(contestant.name, limiter.ask([_USER.decode()] * (_FULL + 1), 1), _FULL)
    watch.step()
    keys = server.ask("KEYS", "*")
    assert isinstance(keys, list)
    return float(sum(int(str(server.ask("MEMORY", "USAGE", key, "SAMPLES", 0))) for key in keys))


def _bytes_per_key(server: Server, contestant: AsyncConnected, users: int, watch: Watch) -> float:
    commands = list(_commands(server, contestant))
    server.flush()
    before = server.used_memory()
    _send_for_all(server, commands, users)
    while int(server.info("memory").get("mem_overhead_db_hashtable_rehashing", 0)):
        time.sleep(0.05)  # until the server has put its tables in order
    paid = server.used_memory() - before
    guard(contestant.name, int(str(server.ask("DBSIZE"))), users)
    watch.step()
    return paid / users


def _commands(server: Server, contestant: AsyncConnected) -> Iterator[bytes]:
    """What a library sends for the first check of a user, once it is connected and its script is loaded."""
    server.flush()
    with Tasks(contestant.make(_LASTING)) as limiter, socket.create_connection(server.address) as monitor:
        limiter.ask(["u_9999999999"], 1)
        monitor.sendall(b"MONITOR\r\n")
        stream = monitor.recv(5)
        limiter.ask([_USER.decode()], 1)
        server.ask("ECHO", _SEEN)
        while _SEEN not in stream:
            stream += monitor.recv(65_536)
    for line in _COMMAND.findall(stream):
        words = [codecs.escape_decode(word)[0] for word in _WORD.findall(line)]
        if words != [b"ECHO", _SEEN]:
            yield hiredis.pack_command(tuple(words))


def _send_for_all(server: Server, commands: list[bytes], users: int) -> None:
    reader = hiredis.Reader()
    together = b"".join(commands)
    with socket.create_connection(server.address) as connection:
        for first in range(0, users, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, users))
            connection.sendall(b"".join(together.replace(_USER, b"u_%010d" % user) for user in some))
            for _ in range(len(some) * len(commands)):
                answer = reader.gets()
                while answer is False:
                    reader.feed(connection.recv(65_536))
                    answer = reader.gets()
                if isinstance(answer, hiredis.ReplyError):
                    raise answer
