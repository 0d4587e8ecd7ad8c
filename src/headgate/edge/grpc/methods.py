"""The gRPC methods there are: Envoy's question, and health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.statuses import Failed, GrpcStatus
from headgate.edge.rls.admission import Admissions
from headgate.edge.rls.deciding import answer_to, prepare
from headgate.edge.rls.wire import read_question, read_text, write_answer
from headgate.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any, TypeAlias

    from headgate.core.verdict import Verdict
    from headgate.edge.rls.deciding import Asked, RateLimits
    from headgate.edge.rls.messages import Answer

    Message: TypeAlias = bytes | Coroutine[Any, Any, bytes]
    """The message of an answer, or how to come by it where that means to wait."""
    Method: TypeAlias = Callable[[bytes], Message]
    """From the message of a call to the message of its answer."""
    ForCall: TypeAlias = Callable[[Method, Mapping[str, str]], Method]
    """A method for one call, whose header fields are known."""

RATE_LIMITS: Final = "envoy.service.ratelimit.v3.RateLimitService"
HEALTH: Final = "/grpc.health.v1.Health/Check"
_MOST_REMEMBERED: Final = 4_096
_LONGEST_REMEMBERED: Final = 512
_SERVICES: Final = ("", RATE_LIMITS)
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""`HealthCheckResponse`, whose only field is a status."""


def methods(rate_limits: RateLimits, is_ready: Callable[[], bool]) -> Mapping[str, Method]:
    """All methods by path. `Watch` of health is not there, and clients that want it ask `Check` again and again."""

    def check(message: bytes) -> bytes:
        service = read_text(message)
        if service not in _SERVICES:
            sentence = f"there is no service {shown(service)} here"
            raise Failed(GrpcStatus.NOT_FOUND, sentence)
        return _SERVING if is_ready() else _NOT_SERVING

    should_rate_limit = _ShouldRateLimit(rate_limits).answer
    return {f"/{RATE_LIMITS}/ShouldRateLimit": should_rate_limit, HEALTH: check}


class _ShouldRateLimit:
    """Envoy's question. Where the counters are in this process, it is answered on the spot."""

    def __init__(self, rate_limits: RateLimits) -> None:
        self._rate_limits = rate_limits
        self._admissions = Admissions()
        self._known: dict[bytes, tuple[Asked, ...]] = {}

    def answer(self, message: bytes) -> Message:
        asked = self._known.get(message) or self._read(message)
        verdict = self._rate_limits.decide_now(asked)
        return self._decided_later(asked) if verdict is None else self._answered(verdict, (verdict,))

    def _read(self, message: bytes) -> tuple[Asked, ...]:
        asked = prepare(read_question(message))
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        if len(message) <= _LONGEST_REMEMBERED:
            self._known[message] = asked
        return asked

    async def _decided_later(self, asked: tuple[Asked, ...]) -> bytes:
        answer = self._answered(*await self._rate_limits.decided(asked))
        return answer if isinstance(answer, bytes) else await answer

    def _answered(self, whole: Verdict, parts: Sequence[Verdict]) -> Message:
        admission = self._admissions.message(whole) if len(parts) == 1 else None
        if admission is not None:
            return admission
        answer = answer_to(whole, parts)
        return _held_back(answer) if answer.delay else write_answer(answer)


async def _held_back(answer: Answer) -> bytes:
    await asyncio.sleep(answer.delay)
    return write_answer(answer)
