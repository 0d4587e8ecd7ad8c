"""Spans for HTTP requests and gRPC calls, if traces are exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.otlp_traces import mark_failed
from headgate.edge.grpc.methods import RATE_LIMITS, Delayed
from headgate.edge.http import forward_auth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.adapters.otlp_traces import Traces
    from headgate.edge.grpc.methods import ForCall, Method
    from headgate.edge.http.application import HttpRequest
    from headgate.edge.http.service import DecisionService
    from headgate.edge.problems import HttpProblem
    from headgate.protocols.http1.messages import Head, HttpResponse

TRACED_PATHS: Final = frozenset(
    {
        *("/v1/check", "/v1/check:batch", "/v1/peek", "/v1/reserve", "/v1/settle", "/v1/release"),
        *("/json", forward_auth.PATH),
    }
)
_FAULTS: Final = 500


class TracedService:
    """A decision service with a span for each request that decides something."""

    def __init__(self, service: DecisionService, traces: Traces) -> None:
        """`service` answers."""
        self._service = service
        self._traces = traces

    def answer_now(self, _request: HttpRequest) -> HttpResponse | None:
        """Nothing is answered without a span, which needs a task of its own."""
        return None

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request."""
        head = request.head
        path = forward_auth.PATH if head.path.startswith(f"{forward_auth.PATH}/") else head.path
        if path not in TRACED_PATHS:
            return await self._service.answer(request)
        with self._traces.span(path, head.get) as span:
            response = await self._service.answer(request)
            status = response[0]
            span.set_attributes({"http.route": path, "http.response.status_code": status})
            if status >= _FAULTS:
                mark_failed(span)
            return response

    def reads_body(self, head: Head) -> bool:
        """See `Application.reads_body`."""
        return self._service.reads_body(head)

    def refuse(self, head: Head | None, problem: HttpProblem) -> HttpResponse:
        """Answer a request that cannot be served, without a span."""
        return self._service.refuse(head, problem)


def traced_calls(traces: Traces) -> ForCall:
    """Return a function that wraps gRPC methods so that each call has a span."""

    def for_call(method: Method, fields: Mapping[str, str]) -> Method:
        name = fields[":path"].removeprefix("/")
        if not name.startswith(RATE_LIMITS):
            return method

        async def answer(message: bytes) -> bytes | Delayed:
            with traces.span(name, fields.get) as span:
                span.set_attribute("rpc.system", "grpc")
                try:
                    made = method(message)
                    return made if isinstance(made, (bytes, Delayed)) else await made
                except BaseException:
                    mark_failed(span)
                    raise

        return answer

    return for_call
