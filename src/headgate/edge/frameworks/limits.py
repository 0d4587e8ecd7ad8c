"""Limits that are declared at a route in the code, beside a rules file or without one.

    @limiter.limit("5/minute", per="user")

Such a limit is a rule like any other. It is decided with the other rules of the request, in one round trip to the
store, all or nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headgate.adapters import zones
from headgate.core.matching import Plan, Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.limiter import Limiter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.request import Request
    from headgate.core.rule import RuleSet
    from headgate.dataplane.snapshots import Snapshots


class RouteLimit:
    """A rule for the routes that declare it."""

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
        """All as in a rules file. Without a `name` each route has its own counter; routes with one name share it."""
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
        """The rule, validated."""


def route_limiter(general: Limiter, limits: Sequence[RouteLimit]) -> Limiter:
    """A limiter for the routes with these limits: `general`, which is opened and closed elsewhere, with a planner."""
    planner = RoutePlanner(general.snapshots, limits)
    return Limiter(general.store, general.snapshots, general.bare_keys, observer=general.observer, planner=planner)


class RoutePlanner:
    """A `Planner` that joins the active rules, as they change, with the limits of a route."""

    def __init__(self, general: Snapshots, limits: Sequence[RouteLimit]) -> None:
        """The rules of `general` come first in every plan."""
        self._general = general
        self._own = [Snapshot(limit.rule_set, 0, zones.zone, general.clock) for limit in limits]

    def plan(self, request: Request, cost: int | None = None) -> Plan:
        """See `Planner.plan`."""
        return self._join(self._general.plan(request, cost), request, cost)

    def plan_counters(self, request: Request, cost: int | None = None) -> Plan:
        """See `Planner.plan_counters`."""
        return self._join(self._general.plan_counters(request, cost), request, cost)

    def _join(self, plan: Plan, request: Request, cost: int | None) -> Plan:
        if plan.gate is not None:  # a caller that the general rules block or exempt is so here too
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
