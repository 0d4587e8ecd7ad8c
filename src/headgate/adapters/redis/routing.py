"""Sending calls to the server that holds their keys, and after them when keys have moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.redis.node import Commands, Node
    from headgate.adapters.redis.topology import Shard, Topology

    Put = Callable[[Node, Commands, Callable[[object], None]], None]

_MAX_REDIRECTS: Final = 5
_ASKING: Final = (("ASKING",),)


def deliver(
    topology: Topology,
    shard: Shard,
    put: Put,
    answered: Callable[[object], None],
    torn: Callable[[object], None] | None = None,
) -> None:
    """Put a call to the node that holds a shard, and again to where that node says it belongs.

    `put` sends it to a node, after the commands it is given. A call that was sent elsewhere was
    not carried out. `torn` is told if its keys are in two places just now, else `answered`.
    """
    _deliver(topology, shard, put, answered, torn or answered, topology.node(shard), (), 0)


def _deliver(
    topology: Topology,
    shard: Shard,
    put: Put,
    answered: Callable[[object], None],
    torn: Callable[[object], None],
    node: Node,
    before: Commands,
    redirects: int,
) -> None:
    # A function that called itself by its own name would be a cycle, which only the garbage collector ends:
    # so what one call asked and was answered would lie around until then.
    def on_answer(answer: object) -> None:
        redirect = topology.redirect(shard, answer) if isinstance(answer, Exception) else None
        if redirect is None or redirects >= _MAX_REDIRECTS:
            answered(answer)
        elif redirect.node is None:
            torn(answer)
        else:
            asking = _ASKING if redirect.asking else ()
            _deliver(topology, shard, put, answered, torn, redirect.node, asking, redirects + 1)

    put(node, before, on_answer)
