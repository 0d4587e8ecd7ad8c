"""Listeners in front of the recorder."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

from headgate import Limiter, Request
from headgate.adapters.clock import monotonic, wall_clock
from headgate.dataplane.observer import ObserverChain, log_denial
from headgate.dataplane.recorder import Recorder
from headgate.wiring import parts
from headgate.wiring.tracing import observer_of

if TYPE_CHECKING:
    import pytest

    from headgate import Verdict

RULES = [{"name": "one", "per": ["user"], "limits": "1/minute"}]


def test_listeners_hear_of_every_verdict_and_the_recorder_counts_it() -> None:
    """A listener receives each verdict once, and what is recorded stays the same."""

    async def run() -> None:
        heard: list[Verdict] = []
        recorder = Recorder(wall_clock, monotonic)
        limiter = Limiter(*parts("memory://", RULES), observer=ObserverChain(recorder, [heard.append, log_denial]))
        verdicts = [await limiter.check(Request(user="u")) for _ in range(3)]
        assert heard == verdicts
        counts, _ = recorder.take_counts()
        assert sum(count.requests for count in counts) == 3

    asyncio.run(run())


def test_denials_are_logged_with_their_id(caplog: pytest.LogCaptureFixture) -> None:
    """Only what is denied is logged, with the decision's id and rule, and without who asked."""

    async def run() -> None:
        observer = ObserverChain(Recorder(wall_clock, monotonic), [log_denial])
        limiter = Limiter(*parts("memory://", RULES), observer=observer)
        with caplog.at_level(logging.DEBUG, "headgate"):
            await limiter.check(Request(user="u1"))
            denied = await limiter.check(Request(user="u1"))
        (record,) = caplog.records
        assert record.getMessage() == f"decision {denied.id}: denied by one"
        assert vars(record)["fields"] == {"decision": denied.id, "rule": "one", "source": "store"}

    asyncio.run(run())


def test_the_recorder_observes_alone_unless_traces_or_the_debug_log_do_too(caplog: pytest.LogCaptureFixture) -> None:
    """Without traces and without a debug log, the limiter reports to the recorder itself."""
    recorder = Recorder(wall_clock, monotonic)
    with caplog.at_level(logging.INFO, "headgate"):
        assert observer_of(recorder, None) is recorder
    with caplog.at_level(logging.DEBUG, "headgate"):
        assert isinstance(observer_of(recorder, None), ObserverChain)


def test_without_traces_nothing_of_them_is_loaded() -> None:
    """What `headgate serve` imports has no OpenTelemetry in it."""
    code = (
        "import sys, headgate.cli.serve, headgate.wiring.serving;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 (our own code)
