"""Simulations for the admin API: `headgate simulate` in a process of its own, one at a time, for a minute at most.

A replay takes a whole processor while it runs. In a process of its own, at a low priority, it leaves the event loop
that decides requests alone, and it can be stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.edge.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    RuleSets = Callable[[], Awaitable[tuple[Mapping[str, Any], Mapping[str, Any]]]]
    """Gives the draft rules, and those that they are compared with."""

MAX_SECONDS: Final = 60.0
_LOW_PRIORITY: Final = 10
_MAX_SENTENCE: Final = 500


class Simulate(Protocol):
    """Decides recorded requests again."""

    async def __call__(self, rule_sets: RuleSets, seconds: int, subjects: int) -> bytes:
        """The report on the last seconds as JSON; `HttpProblem` if it fails. `rule_sets` is called when it begins."""


class SimulatorProcess:
    """Starts a process for each simulation."""

    def __init__(self, environment: Mapping[str, str], max_seconds: float = MAX_SECONDS) -> None:
        """`environment` is that of the process: with the settings that say where the events are."""
        self._environment = environment
        self._max_seconds = max_seconds
        self._is_running = False

    async def __call__(self, rule_sets: RuleSets, seconds: int, subjects: int) -> bytes:
        """See `Simulate`."""
        if self._is_running:
            sentence = "another simulation is running; retry when it has ended"
            raise HttpProblem(HTTPStatus.CONFLICT, sentence, ("retry-after", "5"))
        self._is_running = True
        try:
            draft, against = await rule_sets()
            with tempfile.TemporaryDirectory(prefix="headgate-simulate-", ignore_cleanup_errors=True) as name:
                folder = Path(name)
                await asyncio.to_thread(_write, folder, draft, against)
                return await self._run(folder, seconds, subjects)
        finally:
            self._is_running = False

    async def _run(self, folder: Path, seconds: int, subjects: int) -> bytes:
        options = ("--since", f"{seconds}s", "--limit", str(subjects), "--sampled", "--json")
        files = ("--rules", str(folder / "draft.json"), "--against", str(folder / "against.json"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headgate", "simulate", *files, *options),
            env=dict(self._environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        with suppress(OSError):  # it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, _LOW_PRIORITY)
        try:
            async with asyncio.timeout(self._max_seconds):
                report, complaint = await process.communicate()
        except TimeoutError:
            sentence = f"the simulation took longer than {self._max_seconds:g} seconds; choose a shorter span"
            raise HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, sentence) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if report.startswith(b"{"):
            return report
        said = complaint.decode(errors="replace").strip()[-_MAX_SENTENCE:]
        raise HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, f"the simulation failed: {said or process.returncode}")


def _write(folder: Path, draft: Mapping[str, Any], against: Mapping[str, Any]) -> None:
    for name, data in (("draft", draft), ("against", against)):
        (folder / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
