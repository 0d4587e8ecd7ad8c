"""Takes that are answered only when enough replicas have them (`wait_replicas`).

WAIT holds up the connection it is sent on, so these takes have a connection of their own.
While a WAIT is under way nothing else is sent on it; what comes meanwhile goes together
afterwards. A shortfall is no error: the take counts, and its answer says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.scripts import Unconfirmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.redis.node import Node

_SHARE_OF_DEADLINE: Final = 0.4
"""For one WAIT; there may be one before ours."""


class ReplicaWait:
    """What is asked of one node's replicas."""

    def __init__(self, node: Node) -> None:
        """`node` is used for nothing else."""
        self._node = node
        self._taking = 0
        """How many takes have no answer yet."""
        self._taken: list[tuple[bytes, int, Callable[[object], None]]] = []
        """Answers that wait for the replicas."""
        self._held: list[tuple[Callable[[], None], Callable[[object], None]]] = []
        self._is_waiting = False

    def put(
        self, take: Callable[[Node, Callable[[object], None]], None], replicas: int, answered: Callable[[object], None]
    ) -> None:
        """Take something, and answer when so many replicas have it, or time is up."""

        def on_answer(answer: object) -> None:
            self._taking -= 1
            if isinstance(answer, bytes):
                self._taken.append((answer, replicas, answered))
            else:
                answered(answer)
            self._wait()

        def send() -> None:
            self._taking += 1
            take(self._node, on_answer)

        if self._taken or self._is_waiting:
            self._held.append((send, answered))
        else:
            send()

    def _wait(self) -> None:
        """Ask for the replicas, once for all that was taken: when the last of it is answered."""
        if self._taking or self._is_waiting or not self._taken:
            return
        self._is_waiting = True
        most = max(replicas for _, replicas, _ in self._taken)
        timeouts = max(1, int(self._node.deadline * 1000 * _SHARE_OF_DEADLINE))
        self._node.send(("WAIT", most, timeouts), answered=self._on_waited)

    def _on_waited(self, acknowledged: object) -> None:
        have = acknowledged if isinstance(acknowledged, int) else 0
        taken, self._taken = self._taken, []
        held, self._held = self._held, []
        self._is_waiting = False
        for answer, replicas, answered in taken:
            answered(answer if have >= replicas else Unconfirmed(answer))
        for send, answered in held:
            if isinstance(acknowledged, Exception):  # they have waited for the same server long enough
                answered(acknowledged)
            else:
                send()
