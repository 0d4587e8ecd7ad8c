"""Traces by OTLP over HTTP, in batches, from a thread of their own. It needs the extra `otel`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headgate.core.event import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from headgate.core.verdict import Verdict

log = logging.getLogger("headgate")

_PATH: Final = "/v1/traces"
_HEADERS: Final = ("traceparent", "tracestate")
_SECONDS_FOR_A_BATCH: Final = 2.0
_SECONDS_TO_CLOSE: Final = 5.0
_ID: Final = "headgate.decision_id"


class Traces:
    """Makes spans, and delivers them if it can. No request ever waits for it."""

    def __init__(self, endpoint: str, worker: str) -> None:
        """`endpoint` is the address of a collector; `worker` is which process of the service this is."""
        # `_Delivery` logs once that a collector is unavailable; its client would log it every few seconds.
        quiet = logging.getLogger("opentelemetry")
        quiet.propagate = False
        quiet.addHandler(logging.NullHandler())
        about = {
            "service.name": "headgate",
            "service.version": version("headgate"),
            "service.instance.id": worker,
        }
        self._delivery = _Delivery(endpoint)
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._delivery))
        self._tracer = self._provider.get_tracer("headgate", version("headgate"))
        self._parents = TraceContextTextMapPropagator()

    @contextmanager
    def span(self, name: str, header: Callable[[str], str | None]) -> Iterator[Span]:
        """The span of what is done inside the block, below the one that the caller names in its headers."""
        given = {name: value for name in _HEADERS if (value := header(name)) is not None}
        parent = self._parents.extract(given, Context())
        with self._tracer.start_as_current_span(name, parent, SpanKind.SERVER, record_exception=False) as span:
            yield span

    async def close(self) -> None:
        """Deliver what is there, within a few seconds."""
        self._delivery.stop_retrying()
        try:
            async with asyncio.timeout(_SECONDS_TO_CLOSE):
                await asyncio.to_thread(self._provider.shutdown)
        except TimeoutError:
            log.warning(
                "traces: shutdown did not wait longer than %g s, the last spans are not delivered", _SECONDS_TO_CLOSE
            )


def tell_span(verdict: Verdict) -> None:
    """Add a verdict to the current span; of several, each after the first as an event. The caller is not named."""
    span = get_current_span()
    if not span.is_recording():
        return
    rule = verdict.rule
    about: dict[str, AttributeValue] = {
        _ID: verdict.id,
        "headgate.decision": kind_of(verdict).value,
        "headgate.source": verdict.source.value,
        "headgate.snapshot": verdict.snapshot,
    }
    if rule is not None:
        about["headgate.rule"] = rule.name
    if _ID in (getattr(span, "attributes", None) or {}):
        span.add_event("decision", about)
    else:
        span.set_attributes(about)


def mark_failed(span: Span) -> None:
    """Say of a span that what it is about could not be done."""
    span.set_status(Status(StatusCode.ERROR))


class _Delivery(SpanExporter):
    """Delivers batches, and says once if that fails and once if it works again."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._named = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        """The endpoint without user and password, for the log."""
        address = endpoint if endpoint.endswith(_PATH) else endpoint + _PATH
        self._exporter = OTLPSpanExporter(address, timeout=_SECONDS_FOR_A_BATCH)
        self._is_failing = self._is_ending = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter.export`."""
        if self._is_failing and self._is_ending:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            log.warning("traces: %s is unavailable, spans are dropped until it recovers", self._named)
        if self._is_failing and not is_failing:
            log.warning("traces: delivery recovered")
        self._is_failing = is_failing
        return result

    def stop_retrying(self) -> None:
        """Try nothing twice from now on."""
        self._is_ending = True
        if self._is_failing:
            self._exporter.shutdown()  # type: ignore[no-untyped-call] # it is untyped

    def shutdown(self) -> None:
        """See `SpanExporter.shutdown`."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # it is untyped
