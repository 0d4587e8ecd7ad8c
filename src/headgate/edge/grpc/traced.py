"""Calls of Envoy's rate-limit service with a span for each, where traces are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.adapters.otlp_traces import mark_failed
from headgate.edge.grpc.methods import RATE_LIMITS, Delayed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.adapters.otlp_traces import Traces
    from headgate.edge.grpc.methods import ForCall, Method


def traced(traces: Traces) -> ForCall:
    """Makes methods that make a span for their call."""

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
