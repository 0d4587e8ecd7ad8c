"""Ten million users for real: ``python -m bench.ten_million users|counters|run|clean --folder FOLDER [--users N]``.

`users` puts the users into PostgreSQL, through the service that `headgate users load` uses; `counters` makes a counter
for each in Valkey, through the library. `run` starts `headgate serve` with 1,000 rules on both, and asks it for ten
minutes, as fast as 64 connections can, about users by Zipf's law. With `--beside` there is a second service with fewer
users, and the two take turns, so that a slow minute of the machine falls on both. All note what they measure in
ten_million.json. `clean` removes the folder. Loading takes up to a quarter of an hour for each step. SIGTERM ends `run`
after the last whole turn, whose figures are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from array import array
from bisect import bisect_right
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import uvloop
from bench.http_load import load as load_http
from bench.report import machine
from bench.ten_million_servers import open_service, open_valkey, process_megabytes
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate import Limiter, Request
from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import migrate
from headgate.adapters.zones import zone
from headgate.controlplane.users import Users
from headgate.simulate.topology.population import Zipf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.server import Server

FILE = Path(__file__).with_name("ten_million.json")
RULES = 1_000
CONNECTIONS = 64
_SKEW = 1.0
_SPREAD_OUT = 7_368_787
"""A prime: neighbours in the order of traffic are no neighbours in the tables."""
_AT_ONCE = 2_000
_SLICE = 20.0
_BESIDE = 4
"""The slices of the smaller service are so many times shorter."""
RULES_FILE = "rules.yaml"
_PREMIUM_EVERY = 10
_PATIENCE = 600.0
_STEP = 1e-5
_SLOWEST = 1_000_000
"""Times that checks took are counted in steps, up to ten seconds: millions of them need no memory."""
_NOT_WHOLE = ("identity_assumed", "degraded_limits", "checks_shed")
"""Checks that were decided without the user's record or without Redis, or not at all; with the warm-up."""
_SIZES = "SELECT pg_total_relation_size('users'), pg_database_size(current_database())"


def rules_text() -> str:
    """A rule for each user, by tier, and 999 for endpoints, each with one counter for all callers.

    They admit everything: a refusal would spare the server work.
    """
    lines = [
        "tiers: {free: {limits: {api: 100000000/day}}, premium: {limits: {api: 200000000/day}}}",
        "default_tier: free",
        "rules:",
        '  - {name: user, per: [user], limits: "tier:api"}',
    ]
    for number in range(1, RULES):
        match = f"{{endpoints: [/api/e{number}]}}"
        lines.append(f"  - {{name: e{number}, match: {match}, per: [global], limits: 1000000000/day}}")
    return "\n".join(lines) + "\n"


def user(rank: int, many: int) -> str:
    """The user of a rank."""
    return f"u_{rank * _SPREAD_OUT % many:010}"


class Asked:
    """Requests as bytes, one after another, by Zipf's law; looks like a very long list."""

    def __init__(self, users: int, seed: int) -> None:
        self._users, self._endpoints = Zipf(users, _SKEW), Zipf(RULES - 1, _SKEW)
        self._many = users
        self._random = random.Random(seed).random

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, _: int) -> bytes:
        name = user(self._users.rank(self._random()), self._many)
        path = f"/api/e{self._endpoints.rank(self._random())}"
        body = f'{{"user":"{name}","method":"GET","path":"{path}"}}'
        return f"POST /v1/check HTTP/1.1\r\nHost: headgate\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


# Loading


async def load_users(folder: Path, many: int, bar: Progress) -> dict[str, float]:
    """All users into PostgreSQL."""
    rows: Iterator[dict[str, object]] = (
        {"id": f"u_{number:010}", "tier": "premium" if number % _PREMIUM_EVERY == 0 else "free"}
        for number in range(many)
    )
    task = bar.add_task("users into PostgreSQL", total=many)
    opened = open_database(f"embedded://{folder}/postgres", folder)
    try:
        await migrate(opened.database)
        async with opened.database.use() as connection:
            await connection.execute("INSERT INTO tiers (name) VALUES ('free'), ('premium')")
        began = time.perf_counter()
        await Users(opened.database, zone).load(rows, "bench", lambda through: bar.update(task, completed=through))
        seconds = time.perf_counter() - began
    finally:
        await opened.close()
    return {"load_users_seconds": seconds, "users_loaded_a_second": many / seconds}


async def measure_users(folder: Path, many: int) -> dict[str, float]:
    """The bytes that they take, once the server has put its tables in order."""
    opened = open_database(f"embedded://{folder}/postgres", folder)
    try:
        async with opened.database.use() as connection:
            await connection.execute("VACUUM (ANALYZE) users", timeout=_PATIENCE)
            await connection.execute("CHECKPOINT", timeout=_PATIENCE)
            table, whole = await connection.fetchrow(_SIZES)
            found = await connection.fetchval("SELECT count(*) FROM users", timeout=_PATIENCE)
            assert found == many, f"{found} users in place of {many}"
    finally:
        await opened.close()
    return {"user_bytes": table / many, "database_bytes": whole}


async def load_counters(server: Server, rules: Path, many: int, bar: Progress) -> dict[str, float]:
    """A counter for each user into Valkey, as the service would make it."""
    task = bar.add_task("counters into Valkey", total=many)
    before = server.used_memory()
    began = time.perf_counter()
    async with Limiter.open(f"{server.url}?deadline_ms=5000", rules) as limiter:
        for first in range(0, many, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, many))
            verdicts = await limiter.check_many([Request(user=f"u_{number:010}", tier="free") for number in some])
            assert all(verdict.allowed for verdict in verdicts), "a counter was not made"
            bar.update(task, completed=some.stop)
    seconds = time.perf_counter() - began
    used, keys = server.used_memory(), int(str(server.ask("DBSIZE")))
    assert keys >= many, f"{keys} keys for {many} users"
    return {
        "load_counters_seconds": seconds,
        "counters_loaded_a_second": many / seconds,
        "counter_bytes": (used - before) / many,
        "valkey_used_bytes": used,
        "valkey_resident_bytes": int(server.info("memory")["used_memory_rss"]),
    }


def make_folder(folder: Path) -> None:
    """Begin anew, with the rules."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "postgres", ignore_errors=True)
    os.chmod(folder, 0o711)  # noqa: PTH101, S103 (PostgreSQL does not run as root, and has to get in)
    (folder / RULES_FILE).write_text(rules_text(), encoding="utf-8")


def counters(folder: Path, many: int, bar: Progress) -> dict[str, float]:
    """A counter for each user, saved in the folder."""
    with open_valkey(folder) as server:
        found = uvloop.run(load_counters(server, folder / RULES_FILE, many, bar))
        server.ask("SAVE")
    return found


# Asking


class Side:
    """One service with so many users, and what it did."""

    def __init__(self, stack: ExitStack, folder: Path, many: int, options: dict[str, str], seconds: float) -> None:
        self._server = stack.enter_context(open_valkey(folder))
        self._service = stack.enter_context(open_service(folder, self._server.url, options))
        self._asked: Sequence[bytes] = Asked(many, seed=15)  # type: ignore[assignment] # as much of a list as is needed
        self._seconds = seconds
        self._took = array("Q", bytes(8 * (_SLOWEST + 1)))
        """How many checks took so many times `_STEP`."""
        self._pace: list[float] = []
        self._hit_rates: list[float] = []
        self._use = [(0.0, 0.0)]
        self._cpu = [0.0, 0.0, 0.0]
        self._keys = int(str(self._server.ask("DBSIZE")))

    def warm_up(self, seconds: float, is_stopped: Callable[[], bool]) -> None:
        """Ask for a while; it does not count."""
        load_http(self._service.port, self._asked, seconds, CONNECTIONS, is_stopped=is_stopped)
        self._use = [self._service.record_use()]

    def one_slice(self, is_stopped: Callable[[], bool]) -> None:
        """Ask for a slice of time. One that is stopped does not count."""
        before = self._cpu_seconds()
        part = load_http(self._service.port, self._asked, self._seconds, CONNECTIONS, is_stopped=is_stopped)
        if is_stopped():
            return
        self._cpu = [sum(each) for each in zip(self._cpu, self._cpu_seconds(), (-one for one in before), strict=True)]
        for each in part:
            self._took[min(_SLOWEST, round(each / _STEP))] += 1
        self._pace.append(len(part) / self._seconds)
        self._use.append(self._service.record_use())
        self._hit_rates.append(_hit_rate(*self._use[-2:]))

    def _cpu_seconds(self) -> tuple[float, float, float]:
        return (*self._service.cpu_seconds(), self._server.cpu_seconds())

    def found(self) -> dict[str, object]:
        """What was measured."""
        many = sum(self._took)
        samples = self._service.samples()
        return {
            "checks": many,
            "seconds": self._seconds * len(self._pace),
            "checks_a_second": many / (self._seconds * len(self._pace)),
            "median_slice": median(self._pace),
            "slices": [round(each) for each in self._pace],
            "p50_ms": 1e3 * self._took_at_most(0.5),
            "p99_ms": 1e3 * self._took_at_most(0.99),
            "record_hit_rate": _hit_rate(self._use[0], self._use[-1]),
            "record_hit_rates": [round(each, 4) for each in self._hit_rates],
            "records_in_memory": samples["headgate_record_cache_entries"],
            **{name: samples.get(f"headgate_{name}_total", 0.0) for name in _NOT_WHOLE},
            "service_cpu_us": 1e6 * self._cpu[0] / many,
            "postgres_cpu_us": 1e6 * self._cpu[1] / many,
            "valkey_cpu_us": 1e6 * self._cpu[2] / many,
            "keys_before": self._keys,
            "keys_after": int(str(self._server.ask("DBSIZE"))),
            "megabytes": process_megabytes(self._service.pid, self._server),
        }

    def _took_at_most(self, share: float) -> float:
        """The seconds within which this share of the checks was answered."""
        return _STEP * bisect_right(list(accumulate(self._took)), share * sum(self._took))


def _hit_rate(before: tuple[float, float], after: tuple[float, float]) -> float:
    hits, misses = after[0] - before[0], after[1] - before[1]
    return hits / max(1, hits + misses)


class Ends:
    """Whether to stop: SIGTERM came, or the time is over."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._is_told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._is_told = True

    def __call__(self) -> bool:
        """Whether to stop at once."""
        return self._is_told

    def before(self, seconds: float) -> bool:
        """Whether what takes so long would come to an end too late."""
        return self._is_told or time.monotonic() + seconds > self._at


def run(
    sides: Sequence[Side], slices: int, warm_up: float, ends: Ends, keep: Callable[[], None], bar: Progress
) -> None:
    """Ask all services in turn, slice after slice; `keep` is called after each turn."""
    task = bar.add_task("checks", total=slices * len(sides))
    for side in sides:
        side.warm_up(warm_up, ends)
    for _ in range(slices):
        if ends.before(2 * _SLICE):
            break
        for side in sides:
            side.one_slice(ends)
            bar.advance(task)
        if not ends():
            keep()


def note(file: Path, name: str, found: Mapping[str, object]) -> None:
    """Keep what was measured under a name, beside what else was."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
    kept["machine"] = machine()
    kept[name] = kept.get(name, {}) | about | dict(found)
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(prog="python -m bench.ten_million", description=__doc__)
    parser.add_argument("step", choices=["users", "counters", "run", "clean"])
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="where the servers keep their data")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--warm-up", type=float, default=30.0)
    parser.add_argument("--beside", type=Path, help="the folder with fewer users")
    parser.add_argument("--beside-users", type=int, default=100_000)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the service")
    parser.add_argument("--name", default="", help="is put behind the number of users, under which figures are kept")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further slice begins")
    parser.add_argument("--figures", type=Path, default=FILE, help="the file that keeps what is measured")
    given = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are stopped
    keep_in = partial(note, given.figures)
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn()) as bar, ExitStack() as stack:
        if given.step == "users":
            make_folder(given.folder)
            keep_in(f"{given.users}", uvloop.run(load_users(given.folder, given.users, bar)))
            keep_in(f"{given.users}", uvloop.run(measure_users(given.folder, given.users)))
        elif given.step == "counters":
            keep_in(f"{given.users}", counters(given.folder, given.users, bar))
        elif given.step == "run":
            options = dict(each.split("=", 1) for each in given.set)
            ends = Ends(began + given.budget)
            sides = {given.users: Side(stack, given.folder, given.users, options, _SLICE)}
            if given.beside is not None:
                sides[given.beside_users] = Side(stack, given.beside, given.beside_users, options, _SLICE / _BESIDE)

            def keep() -> None:
                for users, side in sides.items():
                    keep_in(f"{users}{given.name}", {"settings": options, **side.found()})

            slices = max(1, round(given.seconds / _SLICE))
            run([*sides.values()], slices, given.warm_up, ends, keep, bar)
        else:
            shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
