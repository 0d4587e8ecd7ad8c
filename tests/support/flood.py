"""A flood on a running service, with polite users beside it, on a machine that may be busy or unsteady.

The flood is one caller whose quota is used up, on very many connections. What was answered to whom is returned, to be
judged: the flood may not get anything, and the polite may not notice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from tests.support.fault_proxy import ProxyProcess

from headgate.testing import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.service import Service, Start
    from tests.support.valkey import Server

QUOTA: Final = 100_000
RULES: Final = f"rules: [{{name: quota, per: [user], limits: {QUOTA}/3000 days, algorithm: fixed_window}}]"
POLITE_USERS: Final = 20
_ROOT: Final = Path(__file__).parents[2]
_BURNER: Final = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
_STOP_SECONDS: Final = 0.3
_STOP_EVERY: Final = 2.0


class Weather(StrEnum):
    """What else happens on the machine."""

    CALM = "calm"
    BURNERS = "two CPU burners per core"
    STOPPED = "workers stopped for 300 ms every 2 s"
    UNSTEADY = "2 ms to Redis, 1 % of replies 25 ms later"


class Flood(NamedTuple):
    """How the crowd comes."""

    kind: str
    """http or rls"""
    connections: int
    seconds: float
    each: int | None = None
    """So many requests on each connection; None: as many as are answered in the time."""


class Seen(NamedTuple):
    """What was answered."""

    flood: Counter[str]
    polite: Counter[str]
    polite_wrong: int
    """Polite users who were told other numbers than the ones that are right."""
    polite_p99: float
    worker_bytes: int
    """The most that any worker has held."""
    log: str

    @property
    def admitted(self) -> int:
        """Requests of the flood that were let in."""
        return sum(number for outcome, number in self.flood.items() if outcome.startswith(("200", "OK")))


def flooded(start: Start, valkey: Server, folder: Path, workers: int, flood: Flood, weather: Weather) -> Seen:
    """Let a flood come over a service, and return what was seen. `valkey` listens on a port."""
    rules = folder / "flood.yaml"
    rules.write_text(RULES)
    with ExitStack() as stack:
        redis_url = valkey.url
        if weather is Weather.UNSTEADY:
            proxy = stack.enter_context(ProxyProcess(valkey.port or 0))
            proxy.play(Fault.SLOW, seconds=0.002, stall=0.025, one_in=100)
            redis_url = proxy.url
        service = start("--rules", str(rules), "--workers", str(workers), redis_url=redis_url)
        stack.callback(service.close)  # after what is done to its processes, and before the way to Redis, has ended
        pids = list(service.pids.values())
        assert service.check(user="flooder", cost=QUOTA).status_code == 200
        if weather is Weather.BURNERS:
            stack.enter_context(_burners(2 * (os.cpu_count() or 1), flood.seconds + 60))
        if weather is Weather.STOPPED:
            stack.enter_context(_stopping(pids))
        ports = {"http": urlsplit(service.url).port, "rls": _grpc_port(service)}
        polite = {"kind": "http", "port": ports["http"], "users": POLITE_USERS, "user": "polite"}
        crowd = flood._asdict() | {"port": ports[flood.kind], "user": "flooder"}
        beside = _program("tests.support.flood_crowd", json.dumps(polite | {"seconds": flood.seconds}))
        answers = _answer(_program("tests.support.flood_crowd", json.dumps(crowd)), flood.seconds)
        told = _answer(beside, flood.seconds)
        held = max(_most_memory(pid) for pid in pids)
    wrong = sum(
        numbers != list(range(QUOTA - 1, QUOTA - 1 - len(numbers), -1)) for numbers in told["remaining"].values()
    )
    return Seen(Counter(answers["outcomes"]), Counter(told["outcomes"]), wrong, told["p99_wait"], held, service.errors)


def judge(seen: Seen, flood: Flood) -> None:
    """Hold what was seen against what is promised."""
    assert seen.admitted == 0, seen
    assert sum(seen.flood.values()) >= flood.connections, seen.flood
    allowed = {"429 store", "429 deny_cache", "OVER_LIMIT", "UNAVAILABLE", "not connected", "503 overloaded"}
    assert set(seen.flood) <= allowed, seen.flood
    assert "circuit" not in seen.log, seen.log
    assert set(seen.polite) == {"200 store"}, seen.polite
    assert seen.polite_wrong == 0


def _most_memory(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _grpc_port(service: Service) -> int:
    line = next(line for line in service.output.splitlines() if "grpc" in line.lower() or "rate-limit" in line.lower())
    return int(line.rpartition(":")[2].split()[0].strip("/"))


def _program(module: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(  # noqa: S603 (our own)
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _answer(program: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    output, _ = program.communicate(timeout=2 * seconds + 120)
    answer: dict[str, Any] = json.loads(output)
    return answer


@contextmanager
def _burners(number: int, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-c", _BURNER.format(seconds)]
    running = [subprocess.Popen(command) for _ in range(number)]  # noqa: S603 (our own)
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


@contextmanager
def _stopping(pids: Sequence[int]) -> Iterator[None]:
    """Stop the processes for a moment, again and again."""
    ended = threading.Event()

    def signal_all(number: signal.Signals) -> None:
        for pid in pids:
            os.kill(pid, number)

    def stop_and_go() -> None:
        while not ended.wait(_STOP_EVERY - _STOP_SECONDS):
            signal_all(signal.SIGSTOP)
            ended.wait(_STOP_SECONDS)
            signal_all(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
