"""The processes of a deployment: each has the stores that the product puts together for a mode, on links to servers."""

from __future__ import annotations

from binascii import crc_hqx
from typing import TYPE_CHECKING, Final

from headgate.core.decision import Hit
from headgate.core.failure_policy import FailurePolicy
from headgate.core.keys import spread_mark
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, meter_for
from headgate.core.units import SECOND
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.leased import Leased
from headgate.dataplane.regional import Regional
from headgate.dataplane.sharded import Sharded
from headgate.simulate.topology.deployment import REGIONAL, Mode
from headgate.simulate.topology.network import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from headgate.core.decision import Decision, Key
    from headgate.ports import CounterStore, SharedStore
    from headgate.simulate.topology.deployment import Deployment
    from headgate.simulate.topology.network import Server
    from headgate.simulate.topology.population import SimulatedCounter
    from headgate.simulate.topology.virtual_time import VirtualLoop

_SLOTS: Final = 16_384


def hit_of(counter: SimulatedCounter, deployment: Deployment, mode: Mode) -> Hit:
    """A request to a counter, as a rule with that `spread` makes it."""
    meter = meter_for(Rate(counter.limit, deployment.window * SECOND), Algorithm.FIXED_WINDOW)
    assert meter is not None  # noqa: S101 (it is not unlimited)
    policy = deployment.policy(mode)
    mark = "" if policy.spread is None else spread_mark(policy.spread)
    return Hit(f"rl:{{g=c{counter.rank}}}:c{counter.rank}:{meter.code}{mark}", meter, 1, failure_policy=policy)


class Process:
    """One process, by what it does with the requests that come at the same time."""

    def __init__(
        self,
        region: str,
        deployment: Deployment,
        mode: Mode,
        servers: Mapping[str, Server],
        hit: Hit,
        loop: VirtualLoop,
        random: Random,
    ) -> None:
        """`servers` are those of all regions; `hit` is that of one request."""
        assert hit.failure_policy is not None  # noqa: S101 (`hit_of` gives one)
        self.region = region
        self.hit = hit
        self._loop = loop
        self.last: Decision | None = None
        """The last answer of a store."""
        near = Link(servers[region], deployment.round_trip, random, hit.failure_policy)
        store: SharedStore = near
        if mode is Mode.SHARDS:
            store = Sharded(near, _node_of(deployment.shards), loop.micros)
        elif mode in REGIONAL:
            # What is borrowed is a block, and one operation.
            requests = FailurePolicy() if mode is Mode.BORROW else hit.failure_policy
            far = {
                name: Link(server, deployment.between, random, requests)
                for name, server in servers.items()
                if name != region
            }
            store = Regional(near, region, far, loop.micros, deployment.gossip_seconds)
        self.store: CounterStore = store
        self.cache: DenyCache | None = None
        self._leased: Leased | None = None
        if mode is not Mode.EXACT:
            self.store = self.cache = DenyCache(store, loop.nanos)
        if mode is Mode.LEASED:
            many = deployment.processes_in[region]
            self.store = self._leased = Leased(self.store, loop.nanos, processes=lambda: many)

    def spent_from_blocks(self, requests: int) -> int:
        """How many of the requests were spent from blocks that this process holds: each is a request of its own."""
        if self._leased is None:
            return 0
        spent = 0
        while requests > spent:
            block = self._leased.held.get(self.hit.key)
            if block is None:
                break
            room = block.left if self._loop.nanos() < block.ends else 0
            # With no room left a request of cost 1 goes on to the block that follows, if there is one.
            cost = max(1, min(room, requests - spent))
            if self._leased.take_held((self.hit._replace(cost=cost),)) is None:
                break
            spent += cost
        return spent

    def is_known_denied(self) -> bool:
        """Whether a request is refused from memory."""
        return self.cache is not None and self.cache.denied_now((self.hit,)) is not None


def _node_of(nodes: int) -> Callable[[Key], int]:
    """Which of so many nodes of a cluster has a key, if they share the slots evenly."""

    def node_of(key: Key) -> int:
        return crc_hqx(key.partition("{")[2].partition("}")[0].encode(), 0) % _SLOTS * nodes // _SLOTS

    return node_of
