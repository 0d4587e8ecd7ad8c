"""A decision service to be measured, in a process of its own: ``python -m bench.http_server check PORT REDIS_URL``.

With ``constant`` the same server answers the same bytes to everything, and nothing is decided.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import uvloop

from headgate import Limiter
from headgate.edge.http.server import Address, Ending, serve
from headgate.edge.http.service import DecisionService

if TYPE_CHECKING:
    from headgate.edge.http.rsgi import Exchange, Scope

RULES = [{"name": "search", "per": ["user"], "limits": "1000000/hour"}]
"""One rule, which admits everything."""
PATIENT = "?deadline_ms=500"
"""On a busy machine an answer of Redis may be late. Given up on, it would be measured as a quick one without Redis."""


class Constant(DecisionService):
    """What a verdict looks like, without one."""

    async def __rsgi__(self, _scope: Scope, exchange: Exchange) -> None:
        exchange.response_bytes(200, [("content-type", "application/json")], b'{"allowed":true}\n')


async def _run(kind: str, port: int, url: str) -> None:
    async with Limiter.open(url + PATIENT, rules=RULES) as limiter:
        service = (Constant if kind == "constant" else DecisionService)(limiter, body_limit=65_536, body_seconds=5)
        await serve(service, Address("127.0.0.1", port), Ending(0, 1), lambda: print("ready", flush=True))


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
