"""The gRPC methods: Envoy's ShouldRateLimit, and health."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.edge.access import GRPC_HEALTH
from headgate.edge.grpc.bounds import MAX_MESSAGE
from headgate.edge.problems import INTERNAL_ERROR, STORE_UNAVAILABLE
from headgate.edge.rls.admission import Admissions
from headgate.edge.rls.decisions import UNMATCHABLE, overload_response, prepare, response_of
from headgate.edge.rls.protobuf import read_request, read_text, write_response
from headgate.errors import InvalidRequest, NoRules, Overloaded, StoreError, short_repr
from headgate.protocols.http2.grpc_status import GrpcError, GrpcStatus
from headgate.protocols.http2.sender import MESSAGE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any, TypeAlias

    from headgate.core.verdict import Verdict
    from headgate.edge.rls.decisions import DescriptorCheck, RateLimits

    Message: TypeAlias = "bytes | Delayed | Coroutine[Any, Any, bytes | Delayed]"
    """The message of a response, or a coroutine that returns it."""
    Method: TypeAlias = Callable[[bytes], Message]
    """From the message of a call to the message of its response. Of one that is too large it gets the beginning."""
    ForCall: TypeAlias = Callable[[Method, Mapping[str, str]], Method]
    """Makes the method for one call, whose header fields are known."""

log = logging.getLogger("headgate")

RATE_LIMITS: Final = "envoy.service.ratelimit.v3.RateLimitService"
_MAX_CACHED: Final = 4_096
_MAX_CACHED_BYTES: Final = 512
_MAX_CACHED_ENTRIES: Final = 16
"""Of a cached request: one of 512 bytes can have a hundred."""
_SERVICES: Final = ("", RATE_LIMITS)
_TOO_LARGE: Final = f"a message has at most {MAX_MESSAGE} bytes here"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""`HealthCheckResponse`, whose only field is a status."""


class Delayed(NamedTuple):
    """A response that is sent after a delay; no task waits for it."""

    message: bytes
    seconds: float


def methods(
    rate_limits: RateLimits, is_ready: Callable[[], bool], *, denies_on_overload: bool = False
) -> Mapping[str, Method]:
    """All methods by path. `Watch` of health is missing; clients poll `Check` instead.

    `denies_on_overload`: if too many checks are in flight, a call is denied instead of UNAVAILABLE.
    """

    def check_health(message: bytes) -> bytes:
        if is_too_large(message):
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, _TOO_LARGE)
        service = read_text(message)
        if service not in _SERVICES:
            sentence = f"unknown service {short_repr(service)}"
            raise GrpcError(GrpcStatus.NOT_FOUND, sentence)
        return _SERVING if is_ready() else _NOT_SERVING

    should_rate_limit = _ShouldRateLimit(rate_limits, denies_on_overload=denies_on_overload).answer
    return {f"/{RATE_LIMITS}/ShouldRateLimit": should_rate_limit, GRPC_HEALTH: check_health}


def is_too_large(message: bytes) -> bool:
    """Whether this is only the beginning of a message."""
    return len(message) > MAX_MESSAGE - MESSAGE_PREFIX


class _ShouldRateLimit:
    """Envoy's call. With counters or leases in this process, the response is returned at once, without a task."""

    def __init__(self, rate_limits: RateLimits, *, denies_on_overload: bool) -> None:
        self._rate_limits = rate_limits
        self._denies_on_overload = denies_on_overload
        self._admissions = Admissions(rate_limits.reset)
        self._cached: dict[bytes, tuple[DescriptorCheck, ...]] = {}

    def answer(self, message: bytes) -> Message:
        checks = self._cached.get(message) or self._read(message)
        try:
            verdict = self._rate_limits.decide_now(checks)
        except Overloaded as overloaded:
            return self._overloaded(overloaded, len(checks))
        return self._decide(checks) if verdict is None else self._response(verdict, (verdict,))

    def _read(self, message: bytes) -> tuple[DescriptorCheck, ...]:
        if is_too_large(message):
            return UNMATCHABLE
        checks = prepare(read_request(message))
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        is_small = len(message) <= _MAX_CACHED_BYTES and len(checks) == 1
        if is_small and len(checks[0].request.attributes) <= _MAX_CACHED_ENTRIES:
            self._cached[message] = checks
        return checks

    async def _decide(self, checks: tuple[DescriptorCheck, ...]) -> bytes | Delayed:
        try:
            return self._response(*await self._rate_limits.decided(checks))
        except Overloaded as overloaded:
            return self._overloaded(overloaded, len(checks))

    def _response(self, whole: Verdict, parts: Sequence[Verdict]) -> bytes | Delayed:
        admission = self._admissions.message(whole) if len(parts) == 1 else None
        if admission is not None:
            return admission
        answer = response_of(whole, parts, self._rate_limits.reset)
        message = write_response(answer)
        return Delayed(message, answer.delay) if answer.delay else message

    def _overloaded(self, overloaded: Overloaded, descriptors: int) -> bytes:
        """Deny the call if the operator wants that. Otherwise it is UNAVAILABLE, and Envoy's failure mode applies."""
        if self._denies_on_overload:
            return write_response(overload_response(overloaded, descriptors))
        raise overloaded


def grpc_error(error: Exception) -> GrpcError:
    """The status of a call that failed with `error`."""
    if isinstance(error, GrpcError):
        return error
    if isinstance(error, InvalidRequest):
        return GrpcError(GrpcStatus.INVALID_ARGUMENT, str(error))
    if isinstance(error, NoRules | Overloaded):
        return GrpcError(GrpcStatus.UNAVAILABLE, str(error))
    if isinstance(error, StoreError):
        # Envoy takes any other status for an answer; on UNAVAILABLE its operator's failure mode applies.
        if not error.transient:  # an outage is logged by the circuit breaker, once
            log.error("no decision for a gRPC call, the counter store failed: %s", error)
        return GrpcError(GrpcStatus.UNAVAILABLE, STORE_UNAVAILABLE)
    log.error("gRPC call failed with an unexpected error", exc_info=error)
    return GrpcError(GrpcStatus.INTERNAL, INTERNAL_ERROR)
