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

    def send(node: Node, before: Commands, detours: int) -> None:
        def on_answer(answer: object) -> None:
            detour = topology.detour(place, answer) if isinstance(answer, Exception) else None
            if detour is None or detours >= _MOST_DETOURS:
                answered(answer)
            elif detour.node is None:
                (torn or answered)(answer)
            else:
                send(detour.node, _ASKING if detour.asking else (), detours + 1)

        put(node, before, on_answer)

    send(topology.node(place), (), 0)
