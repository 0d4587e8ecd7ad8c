"""Limits that are declared at a route in the code, beside a rules file or without one.

    @limiter.limit("5/minute", per="user")

Such a limit is a rule like any other. It is decided with the other rules of the request, in one round trip to the
store, all or nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from headgate.adapters import zones
from headgate.core.binding import method_of
from headgate.core.matching import Plan, Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.edge.frameworks.options import options_of, settled
from headgate.errors import InvalidRequest, InvalidRules, InvalidSettings, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.rule import Rule, RuleSet
    from headgate.core.units import Micros
    from headgate.edge.frameworks.options import Options

    JoinedPlan: TypeAlias = tuple[Plan, tuple[tuple["RouteLimit", Rule], ...]]
    """The plan of a call, and the rules that limits of its route have in it."""

KEY: Final = "route.key"
"""The attribute that what a `key` function gave is counted under."""
WITHOUT_CALL: Final = "no call"
"""In place of a call, where a caller is looked up without one."""
_REMEMBERED: Final = 1_024
_REMEMBERED_CALLERS: Final = 4_096
_MAX_REMEMBERED_LENGTH: Final = 256
_PATH: Final = Request._fields.index("path")
_new = tuple.__new__  # half the time of Plan(...)
_RULE_OPTIONS: Final = ("algorithm", "action", "max_delay", "on_store_error", "on_overload")


class Terms(NamedTuple):
    """What a limit asks of one call: its rule, the call as it counts, and the cost."""

    rule_set: RuleSet
    request: Request
    cost: int | None


class RouteLimit:
    """A rule for the routes that declare it."""

    def __init__(self, options: Options) -> None:
        """Without a name each route has its own counter; routes with one name share it."""
        self.options = options
        self.is_plain = not options.is_conditional
        """Whether the rule holds for every call, as it is."""
        self._known: dict[tuple[str, ...], RuleSet] = {}
        if callable(options.limits):
            # Whatever else is wrong must be said now; the limits are only known when a call comes.
            self._rule_set(("1 concurrent",) if options.algorithm == "concurrency" else ("1/second",))
            self._known.clear()
            self.rule_set: RuleSet | None = None
        else:
            self.rule_set = self._rule_set(options.limits)
            """The rule, validated; None if a function gives the limits of each call."""
        self.awaits_answer = options.deduct_when is not None
        """Whether the answer decides if a call counts."""

    @property
    def name(self) -> str:
        """The name of the counter, as callers see it."""
        options = self.options
        if options.name is not None:
            return options.name
        given = options.limits
        text = getattr(given, "__name__", "limits") if callable(given) else "-".join(given)
        return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "limits"

    @property
    def counted_per(self) -> tuple[str, ...]:
        """All that a counter is kept for."""
        options = self.options
        per = [*options.per]
        if options.key is not None:
            per.append(f"attribute:{KEY}")
        if options.per_method and "method" not in per:
            per.append("method")
        if options.name is None and "endpoint" not in per:
            per.append("endpoint")
        return tuple(per)

    async def terms(self, call: object, request: Request, cost: int | None) -> Terms | None:
        """What the limit asks of a call; None if it does not hold for it."""
        options = self.options
        if call is WITHOUT_CALL and options.has_functions:
            msg = f"the limit {self.name!r} depends on functions of the call; look it up with the call itself"
            raise InvalidRequest(msg)
        if not options.enabled or (options.methods is not None and method_of(request) not in options.methods):
            return None
        if options.exempt_when is not None and await settled(options.exempt_when(call)):
            return None
        rule_set = self.rule_set
        if callable(options.limits):
            given = await settled(options.limits(call))
            if given is None:
                return None
            rule_set = self._rule_set_given(given)
        if options.key is not None:
            request = request._replace(attributes={**request.attributes, KEY: _text(await settled(options.key(call)))})
        own = options.cost
        if own is not None:
            own = await settled(own(call)) if callable(own) else own
            cost = cost if own is None else own
        assert rule_set is not None  # noqa: S101 (there is one, or a function that gave it)
        return Terms(rule_set, request, cost)

    def _rule_set_given(self, given: Any) -> RuleSet:  # noqa: ANN401 (by the application's function)
        several = [given] if isinstance(given, str) else given
        try:
            texts = tuple(part.strip() for text in several for part in text.split(";"))
            return self._rule_set(texts)
        except (AttributeError, TypeError, InvalidRules) as error:
            why = f": {error}" if isinstance(error, InvalidRules) else ""
            msg = f"the function for the limit {self.name!r} gave {short_repr(given)}, which is no limit{why}"
            raise InvalidSettings(msg) from error

    def _rule_set(self, limits: tuple[str, ...]) -> RuleSet:
        known = self._known.get(limits)
        if known is None:
            known = parse_rule_set([self._rule(limits)], zones.zone)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[limits] = known
        return known

    def _rule(self, limits: tuple[str, ...]) -> dict[str, Any]:
        options = self.options
        response = {"status": options.status, "message": options.message}
        rule: dict[str, Any] = {"name": self.name, "per": [*self.counted_per], "limits": [*limits]}
        rule |= {name: getattr(options, name) for name in _RULE_OPTIONS}
        rule["response"] = {field: value for field, value in response.items() if value is not None} or None
        return {field: value for field, value in rule.items() if value is not None}


def default_limit(given: str | Sequence[str] | RouteLimit | None) -> RouteLimit | None:
    """The limit for all routes without one, as an application writes it."""
    if given is None or isinstance(given, RouteLimit):
        return given
    return RouteLimit(options_of(given, None, {}, 'default_limits="100/minute"'))


def _text(value: object) -> str:
    """What a `key` function gave, as text; nothing stands for the caller's address."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    msg = f"key gives a text or a number to count for, or None, not {short_repr(value)}"
    raise InvalidSettings(msg)


def _is_lasting(plan: Plan) -> bool:
    """Whether a plan holds for later calls too: slots have a holder for each call, and calendar windows end."""
    return not any(bound.hit.holder is not None or bound.hit.meter.is_calendar for bound in plan.enforced)


class RoutePlans:
    """Joins the plan of the active rules with what the limits of a route ask."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        """`clock` is that of the active rules."""
        self._clock = clock
        self._snapshots: dict[int, Snapshot] = {}
        """By the identity of a rule set, which the snapshot keeps alive."""
        self._known: dict[tuple[object, ...], JoinedPlan] = {}
        """By the number of the snapshot, the limits, and all of a request that decides."""

    async def join(
        self, plan: Plan, limits: Sequence[RouteLimit], request: Request, cost: int | None, call: object
    ) -> JoinedPlan:
        """The whole plan of a call, and the rules that limits of the route have in it."""
        if plan.gate is not None:  # a caller that the general rules block or exempt is so here too
            return plan, ()
        counted: list[tuple[RouteLimit, Rule]] = []
        enforced, shadows, unlimited = plan.enforced, plan.shadows, plan.unlimited
        gate = None
        # The limit of a route has no patterns, and counts by the template of the route: the plan is the same for every
        # path, so that one lookup finds it.
        request = request._replace(path=None)
        for limit in limits:
            if limit.is_plain and limit.rule_set is not None:
                more = self._snapshot(limit.rule_set).plan(request, cost)
                counted.append((limit, limit.rule_set.rules[0]))
            else:
                terms = await limit.terms(call, request, cost)
                if terms is None:
                    continue
                more = self._snapshot(terms.rule_set).plan(terms.request, terms.cost)
                counted.append((limit, terms.rule_set.rules[0]))
            enforced += more.enforced
            shadows += more.shadows
            unlimited += more.unlimited
            gate = more.gate or gate
        if not counted:
            return plan, ()
        return Plan(plan.snapshot, enforced, shadows, gate, unlimited, None, plan.assumed), tuple(counted)

    def alone(self, number: int, limits: tuple[RouteLimit, ...], request: Request) -> JoinedPlan:
        """Fast path of `join_plain` where there are no rules: a caller that comes again has the same plan."""
        user, tenant, api_key, ip, tier, method, _, attributes, route, cost, own, assumed = request
        name = (number, limits, user, tenant, api_key, ip, tier, method, route)
        is_usual = attributes is NO_ATTRIBUTES and cost is None and own is None and not assumed
        known = self._known.get(name) if is_usual else None
        if known is None:
            known = self.join_plain(Plan(number, (), (), None, (), None, assumed), limits, request, cost)
            texts = (user, tenant, api_key, tier, method)
            if is_usual and _is_lasting(known[0]) and sum(map(len, filter(None, texts))) <= _MAX_REMEMBERED_LENGTH:
                if len(self._known) >= _REMEMBERED_CALLERS:
                    self._known.clear()
                self._known[name] = known
        return known

    def join_plain(self, plan: Plan, limits: Sequence[RouteLimit], request: Request, cost: int | None) -> JoinedPlan:
        """Fast path of `join`, without waiting: for limits that hold for every call as they are (`is_plain`)."""
        if plan.gate is not None or not limits:
            return plan, ()
        counted: list[tuple[RouteLimit, Rule]] = []
        number, enforced, shadows, _, unlimited, _, assumed, _ = plan
        gate = None
        request = _new(
            Request, (*request[:_PATH], None, *request[_PATH + 1 :])
        )  # as `_replace`, in a third of the time
        for limit in limits:
            rule_set = limit.rule_set
            assert rule_set is not None  # noqa: S101 (a plain limit has one)
            _, more, watched, stops, free, _, _, _ = self._snapshot(rule_set).plan(request, cost)
            counted.append((limit, rule_set.rules[0]))
            enforced += more
            shadows += watched
            unlimited += free
            gate = stops or gate
        return _new(Plan, (number, enforced, shadows, gate, unlimited, None, assumed, None)), tuple(counted)

    def _snapshot(self, rule_set: RuleSet) -> Snapshot:
        snapshot = self._snapshots.get(id(rule_set))
        if snapshot is None:
            if len(self._snapshots) >= _REMEMBERED:
                self._snapshots.clear()
            snapshot = self._snapshots[id(rule_set)] = Snapshot(rule_set, 0, zones.zone, self._clock)
        return snapshot
