"""The servers that are asked: ``python -m bench.rls_servers headgate|empty URL`` prints its port and answers."""

from __future__ import annotations

import asyncio
import sys

import grpc
import uvloop
from tests.support.addresses import free_address

from headgate import Limiter
from headgate.edge.grpc.methods import RATE_LIMITS, methods
from headgate.edge.grpc.server import serving_grpc
from headgate.edge.rls.decisions import RateLimits

RULES = [
    {
        "name": "callers",
        "match": {"attributes": {"domain": "web"}},
        "per": ["ip"],
        "limits": "1000000/hour",
    },
    {"name": "few", "match": {"attributes": {"domain": "few"}}, "limits": "5/hour"},
]
OK = b"\x08\x01"


async def headgate(url: str, spread: str) -> None:
    """The service, with a rule that counts every caller."""
    callers = RULES[0] if spread == "memory" else {**RULES[0], "spread": spread}
    address = free_address("127.0.0.1", 0)
    async with (
        Limiter.open(url, rules=[callers, RULES[1]]) as limiter,
        serving_grpc(methods(RateLimits(limiter), lambda: True), address, 0),
    ):
        print(address.port, flush=True)
        await asyncio.Event().wait()


async def empty(_url: str) -> None:
    """A handler of grpcio.aio that answers OK without looking."""

    async def answer(_message: bytes, _context: object) -> bytes:
        return OK

    server = grpc.aio.server()
    handlers = {"ShouldRateLimit": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(RATE_LIMITS, handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    # Each on the event loop it is fastest on.
    if sys.argv[1] == "empty":
        asyncio.run(empty(sys.argv[2]))
    else:
        uvloop.run(headgate(sys.argv[2], sys.argv[3]))
