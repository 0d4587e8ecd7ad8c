"""The decision service with a span for each question, where traces are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.otlp_traces import mark_failed
from headgate.edge.http import forward_auth

if TYPE_CHECKING:
    from headgate.adapters.otlp_traces import Traces
    from headgate.edge.http.answers import Answer
    from headgate.edge.http.application import HttpRequest
    from headgate.edge.http.service import DecisionService
    from headgate.edge.problems import Unanswerable
    from headgate.protocols.http1.messages import Head

QUESTIONS: Final = frozenset(
    {
        *("/v1/check", "/v1/check:batch", "/v1/peek", "/v1/reserve", "/v1/settle", "/v1/release"),
        *("/json", forward_auth.PATH),
    }
)
_FAULTS: Final = 500


class TracedService:
    """A decision service that makes spans."""

    def __init__(self, service: DecisionService, traces: Traces) -> None:
        """`service` answers."""
        self._service = service
        self._traces = traces

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        head = request.head
        path = forward_auth.PATH if head.path.startswith(f"{forward_auth.PATH}/") else head.path
        if path not in QUESTIONS:
            return await self._service.answer(request)
        with self._traces.span(path, head.get) as span:
            answer = await self._service.answer(request)
            status = answer[0]
            span.set_attributes({"http.route": path, "http.response.status_code": status})
            if status >= _FAULTS:
                mark_failed(span)
            return answer

    def reads_body(self, head: Head) -> bool:
        """See `Application.reads_body`."""
        return self._service.reads_body(head)

    def refuse(self, head: Head | None, reason: Unanswerable) -> Answer:
        """Answer a request that did not come as it should, and makes no span."""
        return self._service.refuse(head, reason)
