"""Sending calls to the server that holds their keys, and after them when keys have moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.redis.node import Commands, Node
    from headgate.adapters.redis.topology import Place, Topology

    Put = Callable[[Node, Commands, Callable[[object], None]], None]

_MOST_DETOURS: Final = 5
_ASKING: Final = (("ASKING",),)


def deliver(
    topology: Topology,
    place: Place,
    put: Put,
    answered: Callable[[object], None],
    torn: Callable[[object], None] | None = None,
) -> None:
    """Put a call to the node that holds a place, and again to where that node says it belongs.

    `put` sends it to a node, after the commands it is given. A call that was sent elsewhere was
    not carried out. `torn` is told if its keys are in two places just now, else `answered`.
    """
    _deliver(topology, place, put, answered, torn or answered, topology.node(place), (), 0)


def _deliver(
    topology: Topology,
    place: Place,
    put: Put,
    answered: Callable[[object], None],
    torn: Callable[[object], None],
    node: Node,
    before: Commands,
    detours: int,
) -> None:
    # A function that called itself by its own name would be a cycle, which only the garbage collector ends:
    # so what one call asked and was answered would lie around until then.
    def on_answer(answer: object) -> None:
        detour = topology.detour(place, answer) if isinstance(answer, Exception) else None
        if detour is None or detours >= _MOST_DETOURS:
            answered(answer)
        elif detour.node is None:
            torn(answer)
        else:
            asking = _ASKING if detour.asking else ()
            _deliver(topology, place, put, answered, torn, detour.node, asking, detours + 1)

    put(node, before, on_answer)
