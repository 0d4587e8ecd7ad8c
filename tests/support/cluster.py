"""A cluster of three primaries with a replica each, for tests of failing over and of slots that move."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SLOTS: Final = 16_384
_PRIMARIES: Final = 3
_NODE_TIMEOUT: Final = 1_000
_OPTIONS: Final = (
    *("--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_TIMEOUT)),
    *("--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"),
    *("--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no"),
)


class ClusterSetup:
    """Six nodes, all slots served."""

    def __init__(self, folder: Path, common: Sequence[str] = _OPTIONS) -> None:
        """Start the nodes with `common` options and wait until they are a cluster."""
        self.nodes: list[Server] = []
        self._moves: dict[int, tuple[Server, Server]] = {}
        buses = [str(free_port()) for _ in range(2 * _PRIMARIES)]
        try:
            for number, bus in enumerate(buses):
                options = (*common, "--cluster-port", bus)
                self.nodes.append(Server(folder / f"node-{number}", free_port(), options=options))
            self._by_id = {node.text("CLUSTER", "MYID"): node for node in self.nodes}
            self._ids = {node: name for name, node in self._by_id.items()}
            self._form(buses)
        except BaseException:
            self.stop()
            raise
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def _form(self, buses: list[str]) -> None:
        primaries, replicas = self.nodes[:_PRIMARIES], self.nodes[_PRIMARIES:]
        bounds = [SLOTS * number // _PRIMARIES for number in range(_PRIMARIES + 1)]
        for number, primary in enumerate(primaries):
            primary.ask("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
            primary.ask("CLUSTER", "ADDSLOTSRANGE", str(bounds[number]), str(bounds[number + 1] - 1))
        for node in self.nodes:
            for other, bus in zip(self.nodes, buses, strict=True):
                if other is not node:
                    node.ask("CLUSTER", "MEET", "127.0.0.1", str(other.port), bus)
        for primary, replica in zip(primaries, replicas, strict=True):
            wait_until(partial(replica.ask, "CLUSTER", "REPLICATE", self._ids[primary]), "a replica knows its primary")
        self.heal()

    def primaries(self) -> list[Server]:
        """The nodes that serve slots, in the order of the slots."""
        return list(dict.fromkeys(owner for _, _, owner in self._ranges(self._live_node())))

    def replica_of(self, primary: Server) -> Server:
        """The node that would take over from a primary."""
        for line in self._live_node().text("CLUSTER", "NODES").splitlines():
            name, _, _, copied = line.split()[:4]
            if copied == self._ids[primary]:
                return self._by_id[name]
        raise LookupError(primary.url)

    def node_of(self, slot: int) -> Server:
        """The node that serves a slot."""
        return self._owner(self._live_node(), slot)

    def _live_node(self) -> Server:
        return next(node for node in self.nodes if node.answers)

    def has_slots(self, server: Server, seen_by: Server) -> bool:
        """Whether a node takes another one for the primary of some slots."""
        return any(owner is server for _, _, owner in self._ranges(seen_by))

    def _owner(self, node: Server, slot: int) -> Server:
        return next(owner for first, last, owner in self._ranges(node) if first <= slot <= last)

    def _ranges(self, node: Server) -> list[tuple[int, int, Server]]:
        """The first slot, the last slot and who serves them, as one node sees it."""
        answer = node.ask("CLUSTER", "SLOTS")
        assert isinstance(answer, list)
        return sorted((first, last, self._by_id[owner[2].decode()]) for first, last, owner, *_ in answer)

    def move_slot(self, slot: int, to: Server, *, keys: bool = True) -> None:
        """Move a slot to another primary while it is served, with its keys or without."""
        self.begin_move(slot, to)
        self.finish_move(slot, keys=keys)

    def begin_move(self, slot: int, to: Server) -> None:
        """From now on, the owner of a slot redirects requests for a key that is not there to `to` (``ASK``)."""
        source = self.node_of(slot)
        to.ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", self._ids[source])
        source.ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", self._ids[to])
        self._moves[slot] = (source, to)

    def move_key(self, slot: int, key: str | bytes) -> None:
        """Move one key of a slot whose move has begun."""
        source, to = self._moves[slot]
        source.ask("MIGRATE", "127.0.0.1", str(to.port), key, "0", "5000")

    def finish_move(self, slot: int, *, keys: bool = True) -> None:
        """Move what is left (or lose it, without `keys`), and wait until every node knows the new owner."""
        source, to = self._moves[slot]
        left = source.ask("CLUSTER", "GETKEYSINSLOT", str(slot), "1000000")
        assert isinstance(left, list)
        for key in left:
            if keys:
                self.move_key(slot, key)
            else:
                source.ask("DEL", key)
        for node in (to, source):
            node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", self._ids[to])
        del self._moves[slot]
        wait_until(
            lambda: all(self._owner(node, slot) is to for node in self.nodes if node.answers),
            f"every node knows that slot {slot} moved",
        )

    def heal(self) -> None:
        """Let all nodes answer again, give up moves that were not finished, and wait until the cluster is whole."""
        for node in self.nodes:
            node.revive()
        for slot, move in self._moves.items():
            for node in move:
                node.ask("CLUSTER", "SETSLOT", str(slot), "STABLE")
        self._moves.clear()
        wait_until(lambda: all(map(self._sees_all, self.nodes)), "all six nodes are one cluster")

    def _sees_all(self, node: Server) -> bool:
        info = node.text("CLUSTER", "INFO")
        nodes = node.text("CLUSTER", "NODES")
        return (
            "cluster_state:ok" in info
            and nodes.count("slave") == _PRIMARIES
            and nodes.count(" connected") == len(self.nodes)
            and "fail" not in nodes
            and "master_link_status:down" not in node.text("INFO", "replication")
        )

    def clean(self) -> None:
        """Whole again and without a key."""
        self.heal()
        for primary in self.primaries():
            primary.ask("FLUSHALL")

    def stop(self) -> None:
        """End all of them."""
        for node in self.nodes:
            node.kill()
