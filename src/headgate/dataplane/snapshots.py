"""The rules in force: one reference to one immutable snapshot, swapped as a whole."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, Protocol

from headgate.core.matching import Snapshot
from headgate.core.rule import Action, Rule, RuleSet
from headgate.errors import InvalidRules, NoRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.matching import Plan
    from headgate.core.meter import Zones
    from headgate.core.request import Request
    from headgate.core.units import Micros

log = logging.getLogger("headgate")

NO_RULES: Final = "no-rules"
"""The policy of a request that was admitted because no rule set is known."""


class RuleSource(Protocol):
    """Where rules come from, and whether they have changed there."""

    def load(self) -> RuleSet:
        """Read and check the rules; raises `InvalidRules` if they are not right."""

    def signature(self) -> object:
        """Something that differs once the rules have changed. Never raises."""


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
    """Compiles rule sets and holds the newest good one."""

    def __init__(self, zones: Zones, clock: Callable[[], Micros]) -> None:
        """Start with a rule set that is known, and empty."""
        self._zones = zones
        self.clock = clock
        self.current = Snapshot(RuleSet(), 0, zones, clock)
        self.since = clock()
        """When the current one was put in force."""

    def await_rules(self, *, admits: bool) -> None:
        """Begin without a rule set: until one is published, requests pass if it `admits`, else raise `NoRules`."""
        self.current = _Unknown(self._zones, self.clock, admits=admits)

    @property
    def is_known(self) -> bool:
        """Whether there is a rule set, even an empty one."""
        return not isinstance(self.current, _Unknown)

    def publish(self, rule_set: RuleSet, number: int | None = None) -> Snapshot:
        """Compile, then swap. If it does not compile, the snapshot in force stays and the error is raised.

        Without a `number` of its own it gets the next.
        """
        number = self.current.number + 1 if number is None else number
        snapshot = Snapshot(rule_set, number, self._zones, self.clock)
        self.current = snapshot
        self.since = self.clock()
        return snapshot


class Follower:
    """Publishes rules as their source changes. A broken change is refused, with a sentence, once."""

    def __init__(self, source: RuleSource, snapshots: Snapshots) -> None:
        """Load once; what is wrong at the start is raised."""
        self._source = source
        self._snapshots = snapshots
        self._looking = threading.Lock()
        self._seen = source.signature()
        self.refused: str | None = None
        """Why the newest rules are not in force, if they are not."""
        snapshots.publish(source.load())
        self.confirmed = snapshots.since
        """When the rules in force were last seen to be the newest."""

    def poll(self) -> bool:
        """Look once; True if new rules are in force. Does nothing while another thread is looking."""
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
                "new rules refused, snapshot %d stays in force: %s", self._snapshots.current.number, "; ".join(problems)
            )
            return False
        self.refused = None
        log.info("rules changed, snapshot %d is in force", snapshot.number)
        return True
