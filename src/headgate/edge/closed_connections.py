"""Connections that a server closes on its own account, counted by reason, with few log lines."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headgate.core.metrics import Sample
from headgate.edge.log_limit import LogLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("headgate")


class Reason(StrEnum):
    """Why a connection was closed."""

    IDLE_TIMEOUT = "idle_timeout"
    """No request came."""
    HEAD_TIMEOUT = "head_timeout"
    """The head of a request was not complete in time."""
    BODY_TIMEOUT = "body_timeout"
    """The body of a request was not complete in time."""
    WRITE_TIMEOUT = "write_timeout"
    """The client did not read its answers."""
    HANDSHAKE_LIMIT = "handshake_limit"
    """The TLS handshake was not complete, and another client waited for a connection."""
    CONNECTION_LIMIT = "connection_limit"
    """It was idle, and another client waited for a connection."""
    MEMORY_LIMIT = "memory_limit"
    """It held more than its share while all connections together held more than allowed."""


_ORDINARY: Final = frozenset({Reason.IDLE_TIMEOUT.value})
"""Every client that keeps connections meets these."""


class ClosedConnections:
    """Counts for one port."""

    def __init__(self, port: str, lines: LogLimit | None = None) -> None:
        """`port` is the value of a label: ``http`` or ``grpc``."""
        self._port = port
        self._lines = lines or LogLimit()
        self.totals: dict[str, int] = {}
        """By reason."""

    def count(self, reason: str, detail: str = "") -> None:
        """One more; `detail`, for the log, says which client it is and what was too much."""
        total = self.totals[reason] = self.totals.get(reason, 0) + 1
        if reason in _ORDINARY:
            return
        times = self._lines.count(reason)
        if times:
            text = "connections closed on port %s: %d since the last such line, %d in all, reason %s%s"
            log.warning(text, self._port, times, total, reason, f"; {detail}" if detail else "")

    def samples(self) -> Iterator[Sample]:
        """As metrics."""
        for reason, total in self.totals.items():
            yield Sample("headgate_connections_closed_total", total, (self._port, str(reason)))
