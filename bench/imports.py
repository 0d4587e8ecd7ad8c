"""The imports part: what a program waits for before its first check in memory, beside the library limits."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import TYPE_CHECKING

from bench.rows import Better, Outcome, Row

if TYPE_CHECKING:
    from bench.measure import Watch

PART = "imports"
_NOTHING = "nothing"
_PROGRAMS = {
    _NOTHING: "",
    "headgate": "import headgate; limiter = headgate.Limiter.open('memory://')",
    "headgate.sync": "import headgate.sync; limiter = headgate.sync.Limiter.open('memory://')",
    "limits": (
        "import limits; limiter = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage()); "
        "item = limits.parse('5/minute')"
    ),
}
_TIMED = """
import resource, time
began = time.perf_counter()
{program}
took = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_SELF)
print(took, used.ru_utime + used.ru_stime)
"""
"""Seconds that the statements took, and processor time of the whole process."""


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Each program in new processes, in turn; the best of many counts, because disturbances only add time."""
    rounds = 2 if quick else 40
    outcome = Outcome(PART)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in _PROGRAMS}
    watch.begin("import and a limiter in memory", (rounds + 1) * len(_PROGRAMS))
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as compiled:
        for turn in range(rounds + 1):
            for name, program in _PROGRAMS.items():
                found = _measured(program, compiled)
                if turn:  # the first round writes the compiled modules
                    took[name].append(found)
                watch.step()
    best = {name: min(wall for wall, _ in each) * 1e3 for name, each in took.items()}
    usual = {name: median(wall for wall, _ in each) * 1e3 for name, each in took.items()}
    against = "import limits and its memory storage"
    for name, ours in (("import_time", "headgate"), ("import_time_sync", "headgate.sync")):
        ratio = usual[ours] / usual["limits"]
        outcome.rows.append(Row(name, best[ours], best["limits"], "ms", against, Better.LOWER, ratio))
    outcome.figures["imports"] = [
        {"program": name, "best_ms": best[name], "median_ms": usual[name], "cpu_ms": min(cpu for _, cpu in each) * 1e3}
        for name, each in took.items()
    ]
    return outcome


def _measured(program: str, compiled: str) -> tuple[float, float]:
    """Seconds, with compiled modules in a folder: an installer compiles packages, but not those of a work tree."""
    command = [sys.executable, "-X", f"pycache_prefix={compiled}", "-c", _TIMED.format(program=program)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 (our own code)
    took, used = ran.stdout.split()
    return float(took), float(used)
