"""Callers that were refused because their token was missing or wrong: counted, and logged in few lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headgate.core.metrics import Sample
from headgate.edge.problems import LogLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("headgate")

NO_TOKEN: Final = "no token"  # noqa: S105 (a reason)
WRONG_TOKEN: Final = "wrong token"  # noqa: S105 (a reason)


class RefusedSignIns:
    """Those on one port, by reason."""

    def __init__(self, port: str, lines: LogLimit | None = None) -> None:
        """`port` is the value of a label: ``http``, ``grpc`` or ``admin``."""
        self._port = port
        self._lines = lines or LogLimit()
        self.totals: dict[str, int] = {}
        """By reason."""

    def count(self, reason: str, client: str = "") -> None:
        """Count one. The token itself is never logged: it may be right elsewhere."""
        total = self.totals[reason] = self.totals.get(reason, 0) + 1
        times = self._lines.count(reason)
        if times:
            text = "sign-ins refused on port %s: %d since the last such line, %d in all, reason %s%s"
            log.warning(text, self._port, times, total, reason, f"; client {client}" if client else "")

    def samples(self) -> Iterator[Sample]:
        """As metrics."""
        for reason, total in self.totals.items():
            yield Sample("headgate_sign_ins_refused_total", total, (self._port, reason))
