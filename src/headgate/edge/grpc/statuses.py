"""How a gRPC call ends, and what an error means there."""

from __future__ import annotations

import logging
from enum import IntEnum
from urllib.parse import quote

from headgate.edge.problems import OUR_FAULT
from headgate.errors import InvalidRequest, NoRules, Overloaded, StoreError

log = logging.getLogger("headgate")


class GrpcStatus(IntEnum):
    """The statuses that are given here."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Failed(Exception):
    """A call ends without an answer. Raised and caught inside the gRPC edge only."""

    def __init__(self, status: GrpcStatus, sentence: str) -> None:
        """Say why, to the caller."""
        self.status = status
        super().__init__(sentence)

    @property
    def message(self) -> bytes:
        """The sentence as `grpc-message` has it: percent-encoded."""
        return quote(str(self), safe=" !\"#$&'()*+,/:;<=>?@[]^`{|}~").encode()


def failure_of(error: Exception) -> Failed:
    """What a caller is told of an error."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, InvalidRequest):
        return Failed(GrpcStatus.INVALID_ARGUMENT, str(error))
    if isinstance(error, NoRules):
        return Failed(GrpcStatus.UNAVAILABLE, str(error))
    if isinstance(error, StoreError):
        # Whatever else Envoy hears, it takes for an answer; on this its operator's failure mode holds.
        if not error.transient:  # an outage is logged by the breaker, once
            log.error("no decision: %s", error)
        return Failed(GrpcStatus.UNAVAILABLE, "the counters are out of reach")
    if isinstance(error, Overloaded):
        return Failed(GrpcStatus.UNAVAILABLE, str(error))
    log.error("a gRPC call failed", exc_info=error)
    return Failed(GrpcStatus.INTERNAL, OUR_FAULT)
