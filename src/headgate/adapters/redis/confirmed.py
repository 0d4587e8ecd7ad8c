"""Takes that are answered only when enough replicas have them (`wait_replicas`).

WAIT holds up the connection it is sent on, so these takes have a connection of their own.
While a WAIT is under way nothing else is sent on it; what comes meanwhile goes together
afterwards. A shortfall is no error: the take counts, and its answer says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.batch import Unconfirmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.redis.node import Node

_SHARE_OF_DEADLINE: Final = 0.4
"""For one WAIT; there may be one before ours."""


class Confirmed:
    """What is asked of one node's replicas."""

    def __init__(self, node: Node) -> None:
        """`node` is used for nothing else."""
        self._node = node
        self._held: list[Callable[[], None]] = []
        self._unconfirmed: list[tuple[bytes, int, Callable[[object], None]]] = []
        self._is_waiting = False

    def put(
        self, take: Callable[[Node, Callable[[object], None]], None], replicas: int, answered: Callable[[object], None]
    ) -> None:
        """Take something, and answer when so many replicas have it, or time is up."""

        def on_answer(answer: object) -> None:
            if isinstance(answer, bytes):
                self._unconfirmed.append((answer, replicas, answered))
                self._wait()
            else:
                answered(answer)

        def send() -> None:
            take(self._node, on_answer)

        if self._is_waiting:
            self._held.append(send)
        else:
            send()

    def _wait(self) -> None:
        if self._is_waiting:
            return
        self._is_waiting = True
        taken, self._unconfirmed = self._unconfirmed, []
        most = max(replicas for _, replicas, _ in taken)
        patience = max(1, int(self._node.deadline * 1000 * _SHARE_OF_DEADLINE))

        def on_answer(acknowledged: object) -> None:
            have = acknowledged if isinstance(acknowledged, int) else 0
            self._is_waiting = False
            for answer, replicas, answered in taken:
                answered(answer if have >= replicas else Unconfirmed(answer))
            held, self._held = self._held, []
            for send in held:
                send()
            if self._unconfirmed:
                self._wait()

        self._node.send(("WAIT", most, patience), answered=on_answer)
