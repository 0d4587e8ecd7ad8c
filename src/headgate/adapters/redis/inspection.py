"""What Redis servers say about themselves, read without writing anything: for `headgate doctor`."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic
from headgate.adapters.redis.cluster import cluster_slots
from headgate.adapters.redis.connection import execute, open_connection
from headgate.adapters.redis.replies import NOPERM, code_of
from headgate.adapters.redis.sentinel import Sentinel
from headgate.adapters.redis.timeouts import Timeouts, awake_timeout
from headgate.adapters.redis.topology import SLOTS
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.adapters.redis.address import ServerAddress, StoreAddress
    from headgate.adapters.redis.connection import Connection
    from headgate.core.units import Micros

_SECONDS: Final = 5.0
_PINGS: Final = 15
_MICROS: Final = 1_000_000
_NOT_FOR_US: Final = frozenset({NOPERM, "ERR"})
"""The codes of replies to commands that a user may not send, or that a hosted server does not have."""

COUNTING: Final = (
    *("eval", "evalsha", "get", "set", "del", "getrange", "setrange", "strlen", "incrby", "pexpire", "expire"),
    *("time", "zadd", "zcard", "zremrangebyscore"),
)
"""The commands that counting needs; `WAIT` is for rules with `wait_replicas`."""
CHANGING: Final = ("hmget", "hset", "hvals", "hdel", "publish", "subscribe")
"""The commands that following changes of a control plane needs besides."""
_ARGUMENTS: Final = {
    "eval": ("return 1", "0"),
    "evalsha": ("0" * 40, "0"),
    "set": ("{key}", "1"),
    "getrange": ("{key}", "0", "1"),
    "setrange": ("{key}", "0", "x"),
    "incrby": ("{key}", "1"),
    "pexpire": ("{key}", "1"),
    "expire": ("{key}", "1"),
    "time": (),
    "zadd": ("{key}", "1", "x"),
    "zremrangebyscore": ("{key}", "0", "1"),
    "hmget": ("{key}", "x"),
    "hset": ("{key}", "x", "1"),
    "hdel": ("{key}", "x"),
    "publish": ("hg:changes", "x"),
    "subscribe": ("hg:changes",),
}
"""What follows a command, so that the server can say whether it would be permitted; ``{key}`` alone unless told."""
# The server is asked and runs none of them. Redis before 7 cannot be asked.
_PERMITTED: Final = """
if not redis.acl_check_cmd then return false end
return redis.acl_check_cmd(unpack(ARGV)) and 1 or 0
"""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server that answered."""

    name: str
    version: tuple[int, ...]
    """Empty where it may not be asked."""
    is_valkey: bool
    info: Mapping[str, str]
    """What INFO says, by name; empty where it may not be asked."""
    config: Mapping[str, str]
    """Some of what CONFIG GET says; empty where it may not be asked."""
    role: str
    """``master`` or ``slave``; empty where it may not be asked."""
    replicas: int
    clock_offset: float
    """By how many seconds its clock is ahead of ours."""
    latency: float
    """The median of some pings, in seconds."""
    forbidden: tuple[str, ...] = ()
    """Commands that headgate sends and this user may not."""
    missing_slots: int = field(default=0)
    """How many slots of a cluster have no server."""

    def number(self, name: str) -> int:
        """A number that INFO says; 0 if it does not."""
        text = self.info.get(name, "")
        return int(text) if text.isdigit() else 0


async def servers_at(address: StoreAddress) -> Sequence[ServerAddress]:
    """The servers that hold keys at an address; raises `StoreError` if they cannot be found."""
    if address.kind == "sentinel":
        timeouts = Timeouts(address.deadline, address.probe_every)
        sentinel = Sentinel(address.servers, address.name, address.primary, timeouts)
        try:
            return [await sentinel.node(0).find()]
        finally:
            await sentinel.close()
    if address.kind != "cluster":
        return address.servers
    reasons = []
    for seed in address.servers:
        try:
            ranges = await cluster_slots(seed)
        except StoreError as error:
            reasons.append(f"{seed}: {error}")
            continue
        primaries = [(primary[0].decode() or seed.host, primary[1]) for _, _, primary, *_ in ranges]
        return [seed.at(*primary) for primary in dict.fromkeys(primaries)]
    msg = f"no node of the cluster answers ({'; '.join(reasons)})"
    raise StoreError(msg, transient=True)


async def facts_of(server: ServerAddress, clock: Callable[[], Micros], *, follows_changes: bool) -> ServerFacts:
    """Ask a server; raises `StoreError` if it does not answer, or refuses the credentials."""
    try:
        async with awake_timeout(_SECONDS):
            connection = await open_connection(server, lambda _: None)
            try:
                return await _facts(connection, str(server), clock, follows_changes=follows_changes)
            finally:
                connection.abort()
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error) or f"timeout: no reply within {_SECONDS:g} s"
        raise StoreError(reason, transient=True) from error


async def _facts(
    connection: Connection, name: str, clock: Callable[[], Micros], *, follows_changes: bool
) -> ServerFacts:
    spans, offsets = [], []
    for _ in range(_PINGS):
        began, before = monotonic(), clock()
        reply = await _permitted(connection, "TIME")
        spans.append(monotonic() - began)
        match reply:
            case [bytes() as seconds, bytes() as micros]:
                middle = before + (clock() - before) / 2
                offsets.append((int(seconds) * _MICROS + int(micros) - middle) / _MICROS)
    info = _lines(await _permitted(connection, "INFO"))
    config = {}
    for option in ("save", "appendfsync", "maxmemory-policy"):
        match await _permitted(connection, "CONFIG", "GET", option):
            case [bytes() as key, bytes() as value]:
                config[key.decode()] = value.decode()
    missing = await _missing_slots(connection) if info.get("cluster_enabled") == "1" else 0
    version = info.get("valkey_version") or info.get("redis_version", "")
    return ServerFacts(
        name,
        tuple(int(part) for part in version.split(".") if part.isdigit()),
        "valkey_version" in info,
        info,
        config,
        info.get("role", ""),
        int(info.get("connected_slaves", "0")),
        min(offsets, key=abs, default=0.0),
        median(spans),
        await _forbidden(connection, follows_changes=follows_changes),
        missing,
    )


async def _forbidden(connection: Connection, *, follows_changes: bool) -> tuple[str, ...]:
    """Which commands this user may not send, as the server reports it."""
    wanted = [(command, "rl:doctor") for command in COUNTING]
    if follows_changes:
        wanted += [(command, "hg:doctor") for command in (*CHANGING, "get", "set", "del")]
    found: dict[str, None] = {}
    for command, key in wanted:
        arguments = [word.replace("{key}", key) for word in _ARGUMENTS.get(command, ("{key}",))]
        try:
            reply = await execute(connection, "EVAL", _PERMITTED, 0, command, *arguments)
        except StoreError as error:
            # Without it nothing works, and nothing else can be found out.
            return ("eval",) if code_of(error.__cause__) == NOPERM else tuple(found)
        if reply == 0:
            found[command if key.startswith("rl:") or command in CHANGING else f"{command} on hg:*"] = None
    return tuple(found)


async def _missing_slots(connection: Connection) -> int:
    reply = await _permitted(connection, "CLUSTER", "SLOTS")
    if not isinstance(reply, list):
        return 0
    served: int = sum(end - start + 1 for start, end, *_ in reply)
    return SLOTS - served


async def _permitted(connection: Connection, *command: str) -> object:
    """The reply to a command; None if this user may not send it, or the server does not know it."""
    try:
        return await execute(connection, *command)
    except StoreError as error:
        if code_of(error.__cause__) not in _NOT_FOR_US:
            raise
        return None


def _lines(info: object) -> dict[str, str]:
    """What INFO says, by name."""
    if not isinstance(info, bytes):
        return {}
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}
