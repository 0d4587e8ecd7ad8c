"""How a gRPC call ends. Needs no HPACK, so it can be imported without the extra `grpc`."""

from __future__ import annotations

from enum import IntEnum
from urllib.parse import quote


class GrpcStatus(IntEnum):
    """The gRPC status codes that are sent."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """A call ends with an error status. Raised and caught inside the gRPC server only."""

    def __init__(self, status: GrpcStatus, sentence: str) -> None:
        """`sentence` tells the caller why."""
        self.status = status
        super().__init__(sentence)

    @property
    def message(self) -> bytes:
        """The value of `grpc-message`: the sentence, percent-encoded."""
        return quote(str(self), safe=" !\"#$&'()*+,/:;<=>?@[]^`{|}~").encode()


class NotGrpc(Exception):
    """The request is HTTP/2, but no call of gRPC."""
