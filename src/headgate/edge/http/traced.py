"""The decision service with a span for each question, where traces are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.otlp_traces import mark_failed
from headgate.edge.http import forward_auth

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from headgate.adapters.otlp_traces import Traces
    from headgate.edge.http.rsgi import Exchange, Scope
    from headgate.edge.http.service import DecisionService

QUESTIONS: Final = frozenset(
    {
        *("/v1/check", "/v1/check:batch", "/v1/peek", "/v1/reserve", "/v1/settle", "/v1/release"),
        *("/json", forward_auth.PATH),
    }
)
_FAULTS: Final = 500


class TracedService:
    """A decision service as an RSGI application that makes spans."""

    def __init__(self, service: DecisionService, traces: Traces) -> None:
        """`service` answers."""
        self._service = service
        self._traces = traces

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        """Answer one request."""
        path = forward_auth.PATH if scope.path.startswith(f"{forward_auth.PATH}/") else scope.path
        if path not in QUESTIONS:
            await self._service.__rsgi__(scope, exchange)
            return
        with self._traces.span(path, scope.headers.get) as span:
            seen = _Seen(exchange)
            await self._service.__rsgi__(scope, seen)
            span.set_attributes({"http.route": path, "http.response.status_code": seen.status})
            if seen.status >= _FAULTS:
                mark_failed(span)


class _Seen:
    """An exchange that remembers the status of its answer."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.status = 0
        """0 if nobody was there any more to be answered."""

    def __call__(self) -> Awaitable[bytes]:
        return self._exchange()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._exchange.__aiter__()

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self._exchange.response_bytes(status, headers, body)
