"""From a rule that applies to the counter of whoever asks.

Three steps, so that each is taken as seldom as it can be: a rule is compiled once
(`Compiled`), readied once for each pattern and tier it meets (`Ready`), and bound to every
request (`Ready.bind`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.core.decision import Hit
from headgate.core.ids import new_id
from headgate.core.keys import SUBJECTS, escape
from headgate.core.meter import Algorithm, Meter, meter_for
from headgate.core.rule import ATTRIBUTE, Action, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.core.address import Address
    from headgate.core.limit import Limit
    from headgate.core.meter import Calendars
    from headgate.core.request import Request
    from headgate.core.rule import Override, Tier

    Read: TypeAlias = Callable[[Request, Address | None], str | None]

_new = tuple.__new__  # half the time of Hit(...)


class Bound(NamedTuple):
    """A hit, the rule it comes from, and the name that callers see it under."""

    hit: Hit
    rule: Rule
    policy: str
    """The rule's name; with the period where several limits of it apply."""


def method_of(request: Request) -> str:
    """The request's method as rules write it."""
    return (request.method or "").upper()


class Part:
    """One part of `per`: the letter it has in keys, and how it is read off a request."""

    __slots__ = ("code", "read")

    def __init__(self, code: str, read: Read) -> None:
        """Parts are compared by identity: `bind` reads each only once per request."""
        self.code = code
        self.read = read

    def name(self, request: Request, address: Address | None) -> str:
        """The part with its value. A missing value becomes the address, and the mark says so."""
        value = self.read(request, address)
        if value:
            return f"{self.code}={escape(value)}"
        return f"{self.code}@{escape(address.text)}" if address else f"{self.code}?unknown"


def _method(request: Request, _: Address | None) -> str:
    method = method_of(request)
    return "GET" if method == "HEAD" else method


_SHARED: Final = {
    "user": Part(SUBJECTS["user"], lambda request, _: request.user),
    "api_key": Part(SUBJECTS["api_key"], lambda request, _: request.api_key),
    "tenant": Part(SUBJECTS["tenant"], lambda request, _: request.tenant),
    "ip": Part(SUBJECTS["ip"], lambda _, address: None if address is None else address.text),
    "method": Part("m", _method),
}


def _part(name: str, pattern: str) -> Part:
    if name in _SHARED:
        return _SHARED[name]
    if name == "endpoint":
        return Part("e", lambda request, _: request.route or pattern)
    attribute = name.removeprefix(ATTRIBUTE)
    return Part(f"a.{attribute}", lambda request, _: request.attributes.get(attribute))


class Compiled:
    """One rule with everything worked out that does not depend on the request."""

    __slots__ = ("by_tier", "overrides", "per", "rule", "steps")

    def __init__(self, rule: Rule, tiers: Mapping[str, Tier], overrides: Iterable[Override]) -> None:
        """Compile the rule's limits, by tier and override, and put what it counts per in the order of its keys."""
        self.rule = rule
        self.steps = _steps(rule, rule.limits)
        self.by_tier: dict[str | None, tuple[Step, ...]] = {}
        if rule.tier_limit is not None:
            for tier in tiers.values():
                if rule.tier_limit in tier.limits:
                    self.by_tier[tier.name] = _steps(rule, tier.limits[rule.tier_limit])
        self.overrides: dict[tuple[str, str | None], tuple[Step, ...]] = {}
        for override in overrides:
            owner = ("api_key", override.api_key) if override.user is None else ("user", override.user)
            self.overrides[owner] = _steps(rule, override.limits)
        named = [name for name in SUBJECTS if name in rule.per]
        self.per = (*named, *(name for name in rule.per if name not in named and name != "global"))

    def calendar_meters(self) -> Iterable[Meter]:
        """All meters whose window depends on a calendar."""
        for steps in (self.steps, *self.by_tier.values(), *self.overrides.values()):
            yield from (step.meter for step in steps if step.meter.is_calendar)


class Step(NamedTuple):
    """One limit of a rule."""

    middle: str
    """What every key of it has between the subject and the other parts."""
    meter: Meter
    policy: str


def _steps(rule: Rule, limits: tuple[Limit, ...]) -> tuple[Step, ...]:
    meters = [meter_for(limit, rule.algorithm, rule.max_delay) for limit in limits]
    return tuple(
        Step(
            f"}}:{rule.name}:{meter.code}",
            meter,
            rule.name if len(meters) == 1 else f"{rule.name}:{meter.code[2:]}",
        )
        for meter in meters
        if meter is not None
    )


class Ready:
    """A compiled rule for requests of one pattern and tier."""

    __slots__ = ("_calendars", "_is_held", "_others", "_overrides", "_steps", "_subject", "is_watched", "rule")

    def __init__(self, compiled: Compiled, calendars: Calendars, pattern: str, tier: str | None) -> None:
        """Choose the limits and the parts of the key."""
        self.rule = rule = compiled.rule
        self.is_watched = rule.action is Action.LOG
        self._calendars = calendars
        self._is_held = rule.algorithm is Algorithm.CONCURRENCY
        self._steps = compiled.by_tier.get(tier, ()) if compiled.by_tier else compiled.steps
        self._overrides = compiled.overrides
        parts = [_part(name, pattern) for name in compiled.per]
        self._subject = parts[0] if parts else None
        self._others = tuple(parts[1:])

    def bind(
        self, request: Request, address: Address | None, cost: int | None, names: dict[Part, str], bounds: list[Bound]
    ) -> bool:
        """Append one bound hit for each limit; False if there is none, so that the rule counts nothing.

        `names` keeps what was read off the request already, for other rules that count per the same.
        """
        steps = self._steps if not self._overrides else self._steps_of(request)
        if not steps:
            return False
        rule, subject, rest = self.rule, self._subject, ""
        if subject is None:
            tag = f"g={rule.name}"
        else:
            tag = names.get(subject) or names.setdefault(subject, subject.name(request, address))
        for part in self._others:
            rest += f"|{names.get(part) or names.setdefault(part, part.name(request, address))}"
        if cost is None:
            cost = rule.cost_of(method_of(request)) if rule.cost else 1
        holder = new_id() if self._is_held else None  # each request holds slots of its own
        for middle, meter, policy in steps:
            current = self._calendars.current(meter) if meter.is_calendar else meter
            hit = _new(Hit, (f"rl:{{{tag}{middle}{rest}", current, cost, holder, None))
            bounds.append(_new(Bound, (hit, rule, policy)))
        return True

    def _steps_of(self, request: Request) -> tuple[Step, ...]:
        """First found first: the user's override, the key's, what everybody has."""
        for owner in (("user", request.user), ("api_key", request.api_key)):
            steps = self._overrides.get(owner)
            if steps is not None:
                return steps
        return self._steps
