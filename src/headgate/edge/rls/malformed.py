"""Calls that are over the limit because no rule can be found for them: counted, and logged in few lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headgate.core.address import parse_address
from headgate.core.metrics import Sample
from headgate.core.path import path_problem
from headgate.core.request import method_problem
from headgate.edge.problems import LogLimit
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.request import Request

log = logging.getLogger("headgate")


class MalformedCalls:
    """Those on one port, by what is malformed."""

    def __init__(self, port: str, lines: LogLimit | None = None) -> None:
        """`port` is the value of a label: ``http`` or ``grpc``."""
        self._port = port
        self._lines = lines or LogLimit()
        self._totals: dict[str, int] = {}

    def count(self, part: str) -> None:
        """Count one, of which this part is malformed. What the caller has sent is never logged."""
        self._totals[part] = self._totals.get(part, 0) + 1
        times = self._lines.count(part)
        if times:
            log.warning("calls of Envoy denied because of a malformed %s: %d since the last such line", part, times)

    def samples(self) -> Iterator[Sample]:
        """As metrics."""
        for part, total in self._totals.items():
            yield Sample("headgate_malformed_calls_total", total, (self._port, part))


def malformed_part(request: Request) -> str | None:
    """What keeps rules from being found for a request, or None."""
    if request.path and path_problem(request.path):
        return "path"
    if request.method and method_problem(request.method):
        return "method"
    try:
        if request.ip:
            parse_address(request.ip)
    except InvalidRequest:
        return "address"
    return None
