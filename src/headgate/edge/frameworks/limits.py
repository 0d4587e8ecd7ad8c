"""Limits that stand at a route in the code, in place of a rules file.

    @limiter.limit("5/minute", per="user")

Such a limit is a rule like any other, and is decided together with those that concern the
request anyway: in one trip to the store, all or nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.adapters import zones
from headgate.core.matching import Plan, Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.snapshots import Snapshots
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.blocklist import BlockList
    from headgate.core.request import Request
    from headgate.core.rule import RuleSet
    from headgate.dataplane.telling import Witness

F = TypeVar("F", bound="Callable[..., Any]")

_LIMITS: Final = "__headgate_limits__"
_EXEMPT: Final = "__headgate_exempt__"


class RouteLimit:
    """A rule for the routes it stands at."""

    def __init__(
        self,
        limits: str | Sequence[str],
        per: str | Sequence[str] = "user",
        *,
        name: str | None = None,
        algorithm: str | None = None,
        action: str | None = None,
        max_delay: str | None = None,
        on_store_error: str | None = None,
        status: int | None = None,
        message: str | None = None,
    ) -> None:
        """All as in a rules file. Without a `name` each route counts for itself; routes that give one name share."""
        counted = [per] if isinstance(per, str) else list(per)
        if name is None:
            counted += [] if "endpoint" in counted else ["endpoint"]
        several = [limits] if isinstance(limits, str) else list(limits)
        response = {"status": status, "message": message}
        given: dict[str, Any] = {
            "name": name or re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, several)).lower()).strip("-"),
            "per": counted,
            "limits": several,
            "algorithm": algorithm,
            "action": action,
            "max_delay": max_delay,
            "on_store_error": on_store_error,
            "response": {field: value for field, value in response.items() if value is not None} or None,
        }
        rule = {field: value for field, value in given.items() if value is not None}
        self.rule_set: RuleSet = parse_rule_set([rule], zones.zone)
        """The one rule, checked."""


def mark(function: F, limit: RouteLimit) -> F:
    """Note at a view that a limit stands there; `InvalidSettings` if it would count on the counter of another one."""
    rule = limit.rule_set.rules[0]
    for other in limits_at(function):
        (theirs,) = other.rule_set.rules
        if (theirs.name, theirs.per) == (rule.name, rule.per):
            msg = f"two limits at one route are called {rule.name!r} and count alike; name one otherwise, or remove it"
            raise InvalidSettings(msg)
    setattr(function, _LIMITS, (limit, *limits_at(function)))
    return function


def exempt(function: F) -> F:
    """Note at a view that nothing limits it."""
    setattr(function, _EXEMPT, True)
    return function


def limits_at(view: object) -> tuple[RouteLimit, ...]:
    """The limits that stand at a view."""
    found: tuple[RouteLimit, ...] = getattr(view, _LIMITS, ())
    return found


def is_exempt(view: object) -> bool:
    """Whether nothing limits a view."""
    return getattr(view, _EXEMPT, False) is True


class JoinedLimiter(Limiter):
    """A limiter for one route: the general one with limits beside its rules.

    Whom it shuts out and whom it tells is the general limiter's to say, at every check. What
    `Limiter` sets to begin with is left aside.
    """

    def __init__(self, general: Limiter, limits: Sequence[RouteLimit]) -> None:
        """`general` has the counters, and is opened and closed elsewhere."""
        self._general = general
        super().__init__(general.store, Joined(general.snapshots, limits), general.bare_keys, general.follower)

    @property
    def blocks(self) -> BlockList | None:
        """See `Limiter.blocks`."""
        return self._general.blocks

    @blocks.setter
    def blocks(self, _blocks: BlockList | None) -> None: ...

    @property
    def recorder(self) -> Witness | None:
        """See `Limiter.recorder`."""
        return self._general.recorder

    @recorder.setter
    def recorder(self, _recorder: Witness | None) -> None: ...


class Joined(Snapshots):
    """The rules in force, with limits that stand at a route beside them."""

    def __init__(self, general: Snapshots, limits: Sequence[RouteLimit]) -> None:
        """`general` goes on being followed as it changes."""
        super().__init__(zones.zone, general.clock)
        own = [Snapshot(limit.rule_set, 0, zones.zone, general.clock) for limit in limits]
        self.current: Snapshot = _JoinedSnapshot(general, own)


class _JoinedSnapshot(Snapshot):
    """Plans with the newest general rules, then with the others."""

    def __init__(self, general: Snapshots, own: Sequence[Snapshot]) -> None:
        self._general = general
        self._own = own

    @property
    def number(self) -> int:  # type: ignore[override] # the general rules' number, as it is now
        """The number of the general rules in force."""
        return self._general.current.number

    def address(self, text: str) -> Any:  # noqa: ANN401 (as the general rules say)
        """See `Snapshot.address`."""
        return self._general.current.address(text)

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        """See `Snapshot.plan`. Who is exempt or blocked by the general rules is so here too."""
        plan = self._general.current.plan(request, cost)
        if plan.gate is not None:
            return plan
        for snapshot in self._own:
            more = snapshot.plan(request, cost)
            plan = Plan(
                plan.snapshot,
                plan.enforced + more.enforced,
                plan.shadows + more.shadows,
                more.gate,
                plan.unlimited + more.unlimited,
                None,
                plan.assumed,
            )
        return plan
