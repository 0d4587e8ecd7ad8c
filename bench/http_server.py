"""A decision service to be measured, in a process of its own: ``python -m bench.http_server check PORT URL SPREAD``.

With ``constant`` the same server answers the same bytes to everything, and nothing is decided.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import uvloop

from headgate import Limiter
from headgate.edge.http.server import ShutdownTimes, serve
from headgate.edge.http.service import DecisionService
from headgate.edge.listening import Address

if TYPE_CHECKING:
    from headgate.edge.http.application import HttpRequest
    from headgate.protocols.http1.messages import HttpResponse

RULES = [{"name": "search", "per": ["user"], "limits": "1000000000/hour"}]  # none is refused, however fast it gets
"""One rule, which admits everything."""
PATIENT = "?deadline_ms=500"
"""On a busy machine an answer of Redis may be late. Given up on, it would be measured as a quick one without Redis."""


class Constant(DecisionService):
    """What a verdict looks like, without one."""

    def answer_now(self, _request: HttpRequest) -> HttpResponse | None:
        """By a task, as what asks a store."""
        return None

    async def answer(self, _request: HttpRequest) -> HttpResponse:
        """HttpResponse the same to everything."""
        return 200, "content-type: application/json\r\n", b'{"allowed":true}\n'


async def _run(kind: str, port: int, url: str, spread: str) -> None:
    address = url if url.startswith("memory:") else url + PATIENT
    rules = RULES if spread == "memory" else [{**RULES[0], "spread": spread}]
    async with Limiter.open(address, rules=rules) as limiter:
        service = (Constant if kind == "constant" else DecisionService)(limiter)
        await serve(service, Address("127.0.0.1", port), ShutdownTimes(0, 1), lambda: print("ready", flush=True))


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1], int(sys.argv[2]), *sys.argv[3:5]))
