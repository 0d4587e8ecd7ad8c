"""Calls that are concluded only when enough replicas have their writes (`wait_replicas`).

WAIT blocks the connection it is sent on, so these calls have a connection of their own. While a WAIT is in flight
nothing else is sent there; calls that arrive meanwhile go out together afterwards. Too few replicas are no error: the
call counts, and its reply says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.call import RedisCall
from headgate.adapters.redis.scripts import Unconfirmed

if TYPE_CHECKING:
    from headgate.adapters.redis.node import Node

_SHARE_OF_DEADLINE: Final = 0.4
"""For one WAIT; a call may wait for the one before it too."""


class ReplicaWait:
    """The calls to one node that its replicas must have too."""

    def __init__(self, node: Node) -> None:
        """`node` is used for nothing else."""
        self._node = node
        self._in_flight = 0
        """How many calls have no reply yet."""
        self._replied: list[tuple[RedisCall, bytes]] = []
        """Calls that have their reply and wait for the replicas."""
        self._held: list[RedisCall] = []
        """Calls that wait for the WAIT in flight."""
        self._is_waiting = False

    def send(self, call: RedisCall) -> None:
        """Send a call, and conclude it when enough replicas have its writes, or time is up."""
        if self._replied or self._is_waiting:
            self._held.append(call)
        else:
            self._send(call)

    def _send(self, call: RedisCall) -> None:
        def on_reply(reply: object) -> None:
            self._in_flight -= 1
            if isinstance(reply, bytes):
                self._replied.append((call, reply))
            else:
                call.conclude(reply)
            self._wait()

        self._in_flight += 1
        inner = RedisCall(call.script, call.keys, call.arguments, on_reply)
        inner.is_asking = call.is_asking
        inner.send_to(self._node)

    def _wait(self) -> None:
        """Send one WAIT for all calls that have their reply, once none is in flight."""
        if self._in_flight or self._is_waiting or not self._replied:
            return
        self._is_waiting = True
        replicas = max(call.replicas for call, _ in self._replied)
        millis = max(1, int(self._node.deadline * 1000 * _SHARE_OF_DEADLINE))
        RedisCall(None, 0, ("WAIT", replicas, millis), self._on_waited).send_to(self._node)

    def _on_waited(self, acknowledged: object) -> None:
        have = acknowledged if isinstance(acknowledged, int) else 0
        replied, self._replied = self._replied, []
        held, self._held = self._held, []
        self._is_waiting = False
        for call, reply in replied:
            call.conclude(reply if have >= call.replicas else Unconfirmed(reply))
        for call in held:
            if isinstance(acknowledged, Exception):  # they have waited for the same server long enough
                call.conclude(acknowledged)
            else:
                self._send(call)
