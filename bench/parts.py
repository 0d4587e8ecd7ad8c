"""The parts of the benchmark, and how long each may take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

PARTS: Final = {
    "memory": 300,
    "imports": 120,
    "redis": 1_500,
    "leases": 600,
    "recording": 900,
    "http": 300,
    "cold_users": 300,
    "rls": 1_200,
    "flood": 300,
    "frameworks": 300,
    "routes": 600,
    "sdk": 180,
}
"""Seconds after which a part is stopped: some three times of what it takes on two cores, and of rls the build by Go."""
_SECONDS_TO_END: Final = 20


def run(part: str, options: list[str], seconds: float | None = None) -> str | None:
    """Run a part in a process of its own; the sentence why it failed, if it did.

    So a part that fails takes no other with it, finds a fresh interpreter, and can be stopped with all it has started.
    """
    budget = seconds or PARTS[part]
    command = [sys.executable, "-m", "bench.part", part, *options]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], start_new_session=True)  # noqa: S603 (our own)
    try:
        code = process.wait(budget)
    except subprocess.TimeoutExpired:
        return f"stopped after {budget:,g} seconds"
    finally:
        _end(process)
    return f"ended with code {code}" if code else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a part and what it has started, which is one group of processes: first by what Ctrl-C does."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with suppress(ProcessLookupError):  # nothing was left behind
        os.killpg(process.pid, signal.SIGKILL)
