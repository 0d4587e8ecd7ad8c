"""What the connections of one gRPC server have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.edge.acceptor import Door
    from headgate.edge.closed_connections import ClosedConnections
    from headgate.edge.fairness import Turns
    from headgate.edge.grpc.bounds import Bounds
    from headgate.edge.grpc.connection import Connection
    from headgate.edge.grpc.header_blocks import HeaderFields
    from headgate.edge.grpc.methods import ForCall, Method


class Answers:
    """Which calls are answered, and by what."""

    def __init__(
        self, methods: Mapping[str, Method], admits: Callable[[HeaderFields], bool], for_call: ForCall | None = None
    ) -> None:
        """`admits` says by its headers if a call may be answered; `for_call` makes methods that know their headers."""
        self.methods = methods
        self.admits = admits
        self.for_call = for_call


class Shared:
    """What they answer with, and what they may take together."""

    def __init__(
        self, answers: Answers, door: Door[Connection], turns: Turns, bounds: Bounds, closed: ClosedConnections
    ) -> None:
        """All of it is the server's."""
        self.answers = answers
        self.door = door
        self.turns = turns
        self.bounds = bounds
        self.closed = closed
        self.held = 0
        """Bytes that all connections together make us keep."""

    @property
    def fair_share(self) -> int:
        """Of the bytes that may be held in all, those of one connection if each held as many."""
        return self.bounds.held_in_all // max(1, len(self.door.connections))
