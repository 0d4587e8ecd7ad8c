"""Redis as the counters need it: reachable, writable, and forgetting nothing."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.adapters.embedded import VALKEY, EmbeddedServer, named_folder
from headgate.adapters.redis import ServerAddress, StoreAddress, is_redis_url
from headgate.adapters.redis.inspection import facts_of, servers_at
from headgate.errors import InvalidSettings, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headgate.adapters.redis.inspection import ServerFacts
    from headgate.cli.diagnosis.catalog import Report
    from headgate.core.units import Micros
    from headgate.settings import Settings

_SUBJECT: Final = "Redis"
_OLDEST: Final = (6, 2)
_OLDEST_VALKEY: Final = (8,)
_MAX_CLOCK_OFFSET: Final = 1.0
_DEADLINE: Final = 0.05
_FULL: Final = 0.9
_REFUSALS: Final = ("AUTH", "HELLO", "NOAUTH", "WRONGPASS", "DENIED")


async def check_redis(chosen: Settings, wait_replicas: int, clock: Callable[[], Micros], report: Report) -> None:
    """Look at every server that holds counters; `wait_replicas` is the highest that a rule has."""
    url = chosen.redis_url or ""
    if url.startswith("memory:"):
        report.well(_SUBJECT, "there is none: counters are in the memory of the service, and end with it")
        return
    deadline, servers = _DEADLINE, []
    try:
        if is_redis_url(url):
            address = StoreAddress.parse(url)
            deadline, kind = address.deadline, address.kind
            servers = list(await servers_at(address))
        else:
            kind = ""
            path = EmbeddedServer(named_folder(urlsplit(url), chosen.data_dir, "valkey"), VALKEY).socket
            if not listens(path):
                report.add(_SUBJECT, "embedded-stopped", f"no Valkey listens on {path}")
                return
            servers = [ServerAddress(path=str(path))]
    except InvalidSettings as error:
        report.add(_SUBJECT, "redis-address", f"HEADGATE_REDIS_URL is malformed: {error}")
    except StoreError as error:
        report.add(_SUBJECT, "redis-down", str(error))
    for server in servers:
        try:
            facts = await facts_of(server, clock, follows_changes=chosen.database_url is not None)
        except StoreError as error:
            refused = any(word in str(error) for word in _REFUSALS)
            report.add(_SUBJECT, "redis-refuses" if refused else "redis-down", f"{server}: {error}")
        else:
            judge(facts, report, deadline=deadline, kind=kind, wait_replicas=wait_replicas)


def listens(path: Path) -> bool:
    """Whether a server listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def judge(facts: ServerFacts, report: Report, *, deadline: float, kind: str, wait_replicas: int) -> None:
    """What the facts of one server mean for counters."""
    before = len(report.issues)

    def add(code: str, sentence: str) -> None:
        report.add(_SUBJECT, code, f"{facts.name}: {sentence}")

    _judge_role(facts, kind, report)
    _judge_memory(facts, report)
    _judge_disk(facts, report)
    if wait_replicas > facts.replicas and facts.info:
        add("redis-replicas-few", f"a rule has wait_replicas {wait_replicas}, and {facts.replicas} are connected")
    if facts.latency > deadline / 2:
        times = f"an answer takes {facts.latency * 1000:.1f} ms, and a check waits {deadline * 1000:g} ms at most"
        add("redis-slow", times)
    if abs(facts.clock_offset) > _MAX_CLOCK_OFFSET:
        side = "ahead of" if facts.clock_offset > 0 else "behind"
        add("redis-clock", f"its clock is {abs(facts.clock_offset):,.1f} s {side} ours")
    if len(report.issues) == before:
        name, version = _named(facts)
        speed = f"{facts.latency * 1000:.1f} ms an answer, clock {facts.clock_offset * 1000:+.1f} ms"
        report.well(_SUBJECT, f"{name} {version} at {facts.name}: {speed}, evicts nothing, keeps its data")


def _named(facts: ServerFacts) -> tuple[str, str]:
    return "Valkey" if facts.is_valkey else "Redis", ".".join(map(str, facts.version))


def _judge_role(facts: ServerFacts, kind: str, report: Report) -> None:
    """Which server it is, and what its user may do."""

    def add(code: str, sentence: str) -> None:
        report.add(_SUBJECT, code, f"{facts.name}: {sentence}")

    if not facts.info:
        add("redis-not-looked-at", "version, memory, persistence and role are not known")
    elif facts.version < (_OLDEST_VALKEY if facts.is_valkey else _OLDEST):
        add("redis-old", f"it is {' '.join(_named(facts))}")
    if facts.role == "slave":
        add("redis-replica", f"it is a replica of {facts.info.get('master_host')}:{facts.info.get('master_port')}")
    if facts.info.get("cluster_enabled") == "1" and kind != "cluster":
        add("redis-is-cluster", "it runs with cluster-enabled yes")
    elif facts.missing_slots:
        add("redis-slots-missing", f"{facts.missing_slots:,} of 16,384 slots have no server")
    if facts.forbidden:
        add("redis-rights", f"the user may not send {', '.join(facts.forbidden)}")


def _judge_memory(facts: ServerFacts, report: Report) -> None:
    policy, most, used = (
        facts.info.get("maxmemory_policy", "noeviction"),
        facts.number("maxmemory"),
        facts.number("used_memory"),
    )
    if policy != "noeviction":
        when = f"at {most / 2**20:,.0f} MB" if most else "as soon as maxmemory is set"
        report.add(_SUBJECT, "redis-evicts", f"{facts.name}: maxmemory-policy is {policy}; it evicts {when}")
    elif most and used > _FULL * most:
        figures = f"{used / 2**20:,.1f} of {most / 2**20:,.1f} MB are in use"
        report.add(_SUBJECT, "redis-memory-full", f"{facts.name}: {figures}")


def _judge_disk(facts: ServerFacts, report: Report) -> None:
    has_log = facts.info.get("aof_enabled") == "1"
    if facts.info and not has_log and facts.config.get("save") == "":
        report.add(_SUBJECT, "redis-forgets", f"{facts.name}: appendonly is no, and there is no save")
    if has_log and facts.config.get("appendfsync") == "always":
        report.add(_SUBJECT, "redis-fsync-always", f"{facts.name}: appendfsync is always")
    failed = [
        each for each in ("rdb_last_bgsave_status", "aof_last_write_status") if facts.info.get(each, "ok") != "ok"
    ]
    if failed:
        report.add(_SUBJECT, "redis-saves-fail", f"{facts.name}: {' and '.join(failed)} failed")
