"""The gRPC methods there are: Envoy's question, and health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.statuses import Failed, GrpcStatus
from headgate.edge.rls.deciding import prepare
from headgate.edge.rls.wire import read_question, read_text, write_answer
from headgate.errors import shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeAlias

    from headgate.edge.rls.deciding import Asked, RateLimits

    Method: TypeAlias = Callable[[bytes], Awaitable[bytes]]
    """From the message of a call to the message of its answer."""
    ForCall: TypeAlias = Callable[[Method, Mapping[str, str]], Method]
    """A method for one call, whose header fields are known."""

RATE_LIMITS: Final = "envoy.service.ratelimit.v3.RateLimitService"
_MOST_REMEMBERED: Final = 4_096
_LONGEST_REMEMBERED: Final = 512
_SERVICES: Final = ("", RATE_LIMITS)
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""`HealthCheckResponse`, whose only field is a status."""


def methods(rate_limits: RateLimits, is_ready: Callable[[], bool]) -> Mapping[str, Method]:
    """All methods by path. `Watch` of health is not there, and clients that want it ask `Check` again and again."""
    known: dict[bytes, tuple[Asked, ...]] = {}

    async def should_rate_limit(message: bytes) -> bytes:
        asked = known.get(message)
        if asked is None:
            asked = prepare(read_question(message))
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            if len(message) <= _LONGEST_REMEMBERED:
                known[message] = asked
        answer = await rate_limits.decide(asked)
        if answer.delay:
            await asyncio.sleep(answer.delay)
        return write_answer(answer)

    async def check(message: bytes) -> bytes:
        service = read_text(message)
        if service not in _SERVICES:
            sentence = f"there is no service {shown(service)} here"
            raise Failed(GrpcStatus.NOT_FOUND, sentence)
        return _SERVING if is_ready() else _NOT_SERVING

    return {f"/{RATE_LIMITS}/ShouldRateLimit": should_rate_limit, "/grpc.health.v1.Health/Check": check}
