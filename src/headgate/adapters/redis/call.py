"""One call to Redis on its way there and back, with its retry state.

A call is sent again only if the server says that it did not run it:

    NOSCRIPT     the server does not have the script: send it in full. If another call is sending it in full at this
                 moment, try the digest once more: a thousand copies are more than a server can read
    MOVED, ASK   the keys belong to another node: send it there, at most `MAX_REDIRECTS` times
    TRYAGAIN     the keys of the call are on two nodes just now: the owner splits it (`on_split`)

Everything else ends the call: a result, any other error, a timeout, a lost connection, an open circuit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.replies import NOSCRIPT, code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.redis.connection import Command
    from headgate.adapters.redis.node import Node
    from headgate.adapters.redis.scripts import Script
    from headgate.adapters.redis.topology import Shard, Topology

MAX_REDIRECTS: Final = 5
_BY_DIGEST, _BY_DIGEST_AGAIN, _IN_FULL = range(3)


class RedisCall:
    """A script call, or a plain command, that is concluded once: by a reply, or by the error that there is none."""

    __slots__ = (
        "_form",
        "_on_reply",
        "_on_split",
        "_redirects",
        "arguments",
        "attempts",
        "command",
        "is_asking",
        "keys",
        "node",
        "replicas",
        "script",
        "shard",
        "topology",
    )

    def __init__(
        self,
        script: Script | None,
        keys: int,
        arguments: Sequence[bytes | str | int],
        on_reply: Callable[[object], None],
        on_split: Callable[[object], None] | None = None,
        replicas: int = 0,
    ) -> None:
        """`arguments` are the `keys` keys and the arguments of a script; without a script, the words of a command.

        `on_reply` gets the reply or a `StoreError`, `on_split` instead if the keys are on two nodes just now. With
        `replicas` the reply comes when that many replicas have the writes.
        """
        self.script = script
        self.keys = keys
        self.arguments = arguments
        self.command: Command = (*arguments,) if script is None else ("EVALSHA", script.sha, keys, *arguments)
        """What goes over the wire."""
        self.replicas = replicas
        self.attempts = 0
        """How often it was sent. A timeout belongs to one attempt."""
        self.is_asking = False
        """Whether the node takes it only after ``ASKING``."""
        self.topology: Topology | None = None
        self._on_reply: Callable[[object], None] | None = on_reply
        self._on_split = on_split
        self._form = _BY_DIGEST
        self._redirects = 0

    def send(self, topology: Topology, shard: Shard) -> None:
        """Send it to the node that holds `shard`, and follow redirects from there."""
        self.topology = topology
        self.shard = shard
        self.send_to(topology.node(shard))

    def send_to(self, node: Node) -> None:
        """Send it to one node."""
        self.node = node
        self.attempts += 1
        if self.replicas:
            node.replica_wait.send(self)
        else:
            node.send(self)

    @property
    def is_concluded(self) -> bool:
        """Whether the owner has its reply."""
        return self._on_reply is None

    def on_reply(self, reply: object) -> None:
        """Take what a node replied, or the error that it did not reply; a reply after a timeout is dropped."""
        if self._on_reply is not None:
            self.node.record(reply)
            self.conclude(reply)

    def conclude(self, reply: object) -> None:
        """Hand the reply to the owner, unless it says that the call did not run and where to send it now."""
        if self._form == _IN_FULL and self.script is not None:
            self.node.loading.discard(self.script.sha)
        if isinstance(reply, Exception) and self._is_sent_again(reply):
            return
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None:
            self._on_split = None
            self.arguments = self.command = ()  # the timeout watch keeps the call a little longer, but no batch
            on_reply(reply)

    def _is_sent_again(self, error: Exception) -> bool:
        if self._on_reply is None:
            return False
        if self.script is not None and self._form != _IN_FULL and code_of(error) == NOSCRIPT:
            self._send_script(self.script)
            return True
        redirect = None if self.topology is None else self.topology.redirect(self.shard, error)
        if redirect is None or self._redirects >= MAX_REDIRECTS:
            return False
        if redirect.node is None:
            self._on_reply = self._on_split or self._on_reply
            return False
        self._redirects += 1
        if self.script is not None:
            self._by_digest(self.script, _BY_DIGEST)
        self.is_asking = redirect.is_asking
        self.send_to(redirect.node)
        return True

    def _send_script(self, script: Script) -> None:
        """Send the script in full, unless another call is doing that: then by its digest once more."""
        if self._form == _BY_DIGEST and script.sha in self.node.loading:
            self._by_digest(script, _BY_DIGEST_AGAIN)
        else:
            self._form = _IN_FULL
            self.command = ("EVAL", script.text, self.keys, *self.arguments)
            self.node.loading.add(script.sha)
        self.send_to(self.node)

    def _by_digest(self, script: Script, form: int) -> None:
        self._form = form
        self.command = ("EVALSHA", script.sha, self.keys, *self.arguments)
