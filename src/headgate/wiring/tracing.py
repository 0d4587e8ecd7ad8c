"""Who hears of each verdict beside the recorder: traces, where they are wanted, and the log at its finest."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headgate.dataplane.observer import ObserverChain, log_denial
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headgate.adapters.otlp_traces import Traces
    from headgate.core.verdict import Verdict
    from headgate.dataplane.observer import DecisionObserver
    from headgate.dataplane.recorder import Recorder
    from headgate.edge.http.application import Application
    from headgate.edge.http.service import DecisionService
    from headgate.settings import Settings

log = logging.getLogger("headgate")


@asynccontextmanager
async def opened_traces(settings: Settings, worker: str) -> AsyncIterator[Traces | None]:
    """Traces inside the block, delivered at its end; None if they are off."""
    if settings.otel_endpoint is None:
        yield None
        return
    try:
        from headgate.adapters.otlp_traces import Traces  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "traces need opentelemetry, which is not installed: pip install 'headgate[otel]'"
        raise InvalidSettings(msg) from error
    traces = Traces(settings.otel_endpoint, worker)
    try:
        yield traces
    finally:
        await traces.close()


def in_front_of(service: DecisionService, traces: Traces | None) -> Application:
    """What answers: the service, or what makes spans around it."""
    if traces is None:
        return service
    from headgate.edge.tracing import TracedService  # noqa: PLC0415 (an extra)

    return TracedService(service, traces)


def observer_of(recorder: Recorder, traces: Traces | None) -> DecisionObserver:
    """What a limiter reports its verdicts to: the recorder, and with it spans and the debug log where these are on."""
    listeners: list[Callable[[Verdict], None]] = []
    if traces is not None:
        from headgate.adapters.otlp_traces import tell_span  # noqa: PLC0415 (an extra)

        listeners.append(tell_span)
    if log.isEnabledFor(logging.DEBUG):
        listeners.append(log_denial)
    return ObserverChain(recorder, listeners) if listeners else recorder
