"""The active rules and blocks: one reference to each, swapped as a whole, and the plans made from them."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Protocol

from headgate.core.address import parse_address
from headgate.core.matching import Plan, Snapshot
from headgate.core.request import Request
from headgate.core.rule import Action, Rule, RuleSet
from headgate.errors import InvalidRequest, InvalidRules, NoRules, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.blocklist import BlockList
    from headgate.core.meter import Zones
    from headgate.core.units import Micros
    from headgate.errors import Problem

log = logging.getLogger("headgate")

NO_RULES: Final = "no-rules"
"""The policy of a request that was admitted because no rule set is known."""


class RuleSource(Protocol):
    """Where rules come from, and whether they have changed there."""

    def load(self) -> RuleSet:
        """Read and check the rules; raises `InvalidRules` if they are not right."""

    def signature(self) -> object:
        """A value that changes with the rules. Never raises."""


class Planner(Protocol):
    """Turns a request into a plan: the hits to take from the store, or the reason why there are none."""

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        """The plan of a check. A blocked or exempt caller has no hits in it."""

    def plan_counters(self, request: Request, cost: int | None = None) -> Plan:
        """The plan of a request as if no block were active: blocked callers have counters too."""


class _Unknown(Snapshot):
    """Stands in for a snapshot while no rule set is known: it admits every request by one marked rule, or none."""

    def __init__(self, zones: Zones, clock: Callable[[], Micros], *, admits: bool) -> None:
        super().__init__(RuleSet(rules=(Rule(NO_RULES, action=Action.ALLOW),)), 0, zones, clock)
        self._admits = admits

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        if not self._admits:
            raise NoRules
        return super().plan(request, cost)


class Snapshots:
    """Compiles rule sets, holds the newest good one and the active blocks, and plans requests by them."""

    def __init__(
        self,
        zones: Zones,
        clock: Callable[[], Micros],
        problems_here: Callable[[RuleSet], Sequence[Problem]] | None = None,
    ) -> None:
        """Start with a rule set that is known, and empty. `problems_here` says what this process cannot do of one."""
        self._problems_here = problems_here
        self._zones = zones
        self.clock = clock
        self.current = Snapshot(RuleSet(), 0, zones, clock)
        self.since = clock()
        """When the current one became active."""
        self.blocks: BlockList | None = None
        """The active blocks; None if there are none. Set by `publish_blocks`."""

    def await_rules(self, *, admits: bool) -> None:
        """Begin without a rule set: until one is published, requests pass if it `admits`, else raise `NoRules`."""
        self.current = _Unknown(self._zones, self.clock, admits=admits)

    @property
    def is_known(self) -> bool:
        """Whether there is a rule set, even an empty one."""
        return not isinstance(self.current, _Unknown)

    def publish(self, rule_set: RuleSet, number: int | None = None) -> Snapshot:
        """Compile, then swap. If it does not compile, the active snapshot stays and the error is raised.

        Without a `number` of its own it gets the next.
        """
        if self._problems_here is not None and (problems := self._problems_here(rule_set)):
            raise InvalidRules(problems)
        number = self.current.number + 1 if number is None else number
        snapshot = Snapshot(rule_set, number, self._zones, self.clock)
        self.current = snapshot
        self.since = self.clock()
        return snapshot

    def publish_blocks(self, blocks: BlockList) -> None:
        """Replace the active blocks, all at once."""
        self.blocks = blocks if blocks.size else None

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        """See `Planner.plan`."""
        if self.blocks is not None:
            blocked = self._plan_blocked(self.blocks, request)
            if blocked is not None:
                return blocked
        if not isinstance(request, Request):
            raise _not_a_request(request)
        return self.current.plan(request.check(), cost)

    def plan_counters(self, request: Request, cost: int | None = None) -> Plan:
        """See `Planner.plan_counters`."""
        if not isinstance(request, Request):
            raise _not_a_request(request)
        return self.current.plan(request.check(), cost)

    def _plan_blocked(self, blocks: BlockList, request: Request) -> Plan | None:
        """The plan of a blocked caller; None for all others."""
        if not isinstance(request, Request):
            raise _not_a_request(request)
        request.check()
        snapshot, now = self.current, self.clock()
        block = blocks.find(request, parse_address(request.ip) if request.ip else None, now)
        if block is None:
            return None
        return Plan(snapshot.number, (), (), block.gate(now), (), None, request.assumed)


class Follower:
    """Publishes rules as their source changes. A broken change is refused, and logged once."""

    def __init__(self, source: RuleSource, snapshots: Snapshots) -> None:
        """Load once; what is wrong at the start is raised."""
        self._source = source
        self._snapshots = snapshots
        self._looking = threading.Lock()
        self._seen = source.signature()
        self.refused: str | None = None
        """Why the newest rules were refused; None if they are active."""
        snapshots.publish(source.load())
        self.confirmed = snapshots.since
        """When the active rules were last known to be the newest."""

    def poll(self) -> bool:
        """Look for changes once; True if new rules became active. Does nothing while another thread is looking."""
        if not self._looking.acquire(blocking=False):
            return False
        try:
            signature = self._source.signature()
            has_changed = signature != self._seen
            if has_changed:
                self._seen = signature
                has_changed = self._follow()
            if self.refused is None:
                self.confirmed = self._snapshots.clock()
            return has_changed
        finally:
            self._looking.release()

    def _follow(self) -> bool:
        try:
            snapshot = self._snapshots.publish(self._source.load())
        except Exception as error:  # noqa: BLE001 (whatever is wrong with new rules, the old ones stay)
            self.refused = str(error)
            problems = error.lines if isinstance(error, InvalidRules) else (self.refused,)
            log.error(  # noqa: TRY400 (a sentence for the operator, not a traceback)
                "new rules refused, snapshot %d stays active: %s", self._snapshots.current.number, "; ".join(problems)
            )
            return False
        self.refused = None
        log.info("rules changed, snapshot %d is active", snapshot.number)
        return True


def _not_a_request(subject: object) -> InvalidRequest:
    return InvalidRequest(f"expected a headgate.Request, not {short_repr(subject)}")
