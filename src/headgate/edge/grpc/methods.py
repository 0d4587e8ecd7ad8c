"""The gRPC methods there are: Envoy's question, and health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.edge.grpc.statuses import Failed, GrpcStatus
from headgate.edge.rls.admission import Admissions
from headgate.edge.rls.deciding import answer_to, prepare, refusal_of_overload
from headgate.edge.rls.protobuf import read_question, read_text, write_answer
from headgate.errors import Overloaded, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any, TypeAlias

    from headgate.core.verdict import Verdict
    from headgate.edge.rls.deciding import Asked, RateLimits

    Message: TypeAlias = "bytes | Delayed | Coroutine[Any, Any, bytes | Delayed]"
    """The message of an answer, or how to come by it where that means to wait."""
    Method: TypeAlias = Callable[[bytes], Message]
    """From the message of a call to the message of its answer."""
    ForCall: TypeAlias = Callable[[Method, Mapping[str, str]], Method]
    """A method for one call, whose header fields are known."""

RATE_LIMITS: Final = "envoy.service.ratelimit.v3.RateLimitService"
HEALTH: Final = "/grpc.health.v1.Health/Check"
_MAX_REMEMBERED: Final = 4_096
_LONGEST_REMEMBERED: Final = 512
_FEW: Final = 16
"""Entries of a question that is remembered: one of 512 bytes can have a hundred."""
_SERVICES: Final = ("", RATE_LIMITS)
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""`HealthCheckResponse`, whose only field is a status."""


class Delayed(NamedTuple):
    """The message of an answer that is held back; nothing waits for it in between."""

    message: bytes
    seconds: float


def methods(
    rate_limits: RateLimits, is_ready: Callable[[], bool], *, denies_on_overload: bool = False
) -> Mapping[str, Method]:
    """All methods by path. `Watch` of health is not there, and clients that want it ask `Check` again and again.

    `denies_on_overload`: a call that cannot be decided because too many are in flight is refused, not UNAVAILABLE.
    """

    def check(message: bytes) -> bytes:
        service = read_text(message)
        if service not in _SERVICES:
            sentence = f"there is no service {shown(service)} here"
            raise Failed(GrpcStatus.NOT_FOUND, sentence)
        return _SERVING if is_ready() else _NOT_SERVING

    should_rate_limit = _ShouldRateLimit(rate_limits, denies_on_overload=denies_on_overload).answer
    return {f"/{RATE_LIMITS}/ShouldRateLimit": should_rate_limit, HEALTH: check}


class _ShouldRateLimit:
    """Envoy's question. Where the counters are in this process, it is answered on the spot."""

    def __init__(self, rate_limits: RateLimits, *, denies_on_overload: bool) -> None:
        self._rate_limits = rate_limits
        self._denies_on_overload = denies_on_overload
        self._admissions = Admissions()
        self._known: dict[bytes, tuple[Asked, ...]] = {}

    def answer(self, message: bytes) -> Message:
        asked = self._known.get(message) or self._read(message)
        try:
            verdict = self._rate_limits.decide_now(asked)
        except Overloaded as overloaded:
            return self._overloaded(overloaded, len(asked))
        return self._decided_later(asked) if verdict is None else self._answered(verdict, (verdict,))

    def _read(self, message: bytes) -> tuple[Asked, ...]:
        asked = prepare(read_question(message))
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        if len(message) <= _LONGEST_REMEMBERED and len(asked) == 1 and len(asked[0].request.attributes) <= _FEW:
            self._known[message] = asked
        return asked

    async def _decided_later(self, asked: tuple[Asked, ...]) -> bytes | Delayed:
        try:
            return self._answered(*await self._rate_limits.decided(asked))
        except Overloaded as overloaded:
            return self._overloaded(overloaded, len(asked))

    def _answered(self, whole: Verdict, parts: Sequence[Verdict]) -> bytes | Delayed:
        admission = self._admissions.message(whole) if len(parts) == 1 else None
        if admission is not None:
            return admission
        answer = answer_to(whole, parts)
        message = write_answer(answer)
        return Delayed(message, answer.delay) if answer.delay else message

    def _overloaded(self, overloaded: Overloaded, descriptors: int) -> bytes:
        """Refuse the call where the operator wants that; else it is UNAVAILABLE, and Envoy's failure mode decides."""
        if self._denies_on_overload:
            return write_answer(refusal_of_overload(overloaded, descriptors))
        raise overloaded
