"""From a rule that applies to the counters that it uses for one request.

Three steps, from the rarest to the most frequent: a rule is compiled once (`CompiledRule`), prepared once
for each pattern and tier it meets (`BoundRule`), and bound to every request (`BoundRule.bind`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.core.api_key import public_name
from headgate.core.decision import Hit
from headgate.core.failure_policy import failure_policy_of
from headgate.core.ids import new_id
from headgate.core.keys import SUBJECTS, escape, key_templates
from headgate.core.meter import Algorithm
from headgate.core.request import Request
from headgate.core.rule import ATTRIBUTE, Action, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.core.address import Address
    from headgate.core.keys import KeyTemplate
    from headgate.core.meter import Calendars, Meter
    from headgate.core.own_limits import OwnLimits
    from headgate.core.rule import Override, Tier

KeyPart: TypeAlias = "Callable[[Request, Address | None], str]"
"""One part of `per`, read off a request as it stands in keys: a letter, and the value."""

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


def _instead(code: str, address: Address | None) -> str:
    """A missing value becomes the address, and the mark says so."""
    return f"{code}@{address.text}" if address else f"{code}?unknown"


def _field(name: str) -> KeyPart:
    code, index = SUBJECTS[name], Request._fields.index(name)

    def part(request: Request, address: Address | None) -> str:
        value: str | None = request[index]  # type: ignore[assignment] # by index, in half the time
        return f"{code}={escape(value)}" if value else _instead(code, address)

    return part


def _api_key(request: Request, address: Address | None) -> str:
    """Never the key itself: the names of counters can be read by all who may read the store."""
    name = public_name(request.api_key) if request.api_key else None
    return f"k={name}" if name else _instead("k", address)  # hexadecimal digits: nothing to escape


def _ip(_: Request, address: Address | None) -> str:
    return f"i={address.text}" if address else "i?unknown"  # digits, dots and colons: nothing to escape


def _method(request: Request, address: Address | None) -> str:
    method = method_of(request)
    return f"m={'GET' if method == 'HEAD' else escape(method)}" if method else _instead("m", address)


def _endpoint(pattern: str) -> KeyPart:
    usual = f"e={escape(pattern)}"
    return lambda request, _: f"e={escape(request.route)}" if request.route else usual


def _attribute(name: str) -> KeyPart:
    code, is_api_key = f"a.{name}", name == "api_key"

    def part(request: Request, address: Address | None) -> str:
        value = request.attributes.get(name)
        if is_api_key and value:
            value = public_name(value)
        return f"{code}={escape(value)}" if value else _instead(code, address)

    return part


_SHARED: Final[dict[str, KeyPart]] = {
    "user": _field("user"),
    "api_key": _api_key,
    "tenant": _field("tenant"),
    "ip": _ip,
    "method": _method,
}


def _part(name: str, pattern: str) -> KeyPart:
    if name == "endpoint":
        return _endpoint(pattern)
    return _SHARED[name] if name in _SHARED else _attribute(name.removeprefix(ATTRIBUTE))


class CompiledRule:
    """One rule with everything worked out that does not depend on the request."""

    __slots__ = ("by_tier", "overrides", "per", "rule", "templates")

    def __init__(self, rule: Rule, tiers: Mapping[str, Tier], overrides: Iterable[Override]) -> None:
        """Compile the rule's limits, by tier and override, and put what it counts per in the order of its keys."""
        self.rule = rule
        self.templates = key_templates(rule, rule.limits)
        self.by_tier: dict[str | None, tuple[KeyTemplate, ...]] = {}
        if rule.tier_limit is not None:
            for tier in tiers.values():
                if rule.tier_limit in tier.limits:
                    self.by_tier[tier.name] = key_templates(rule, tier.limits[rule.tier_limit])
        self.overrides: dict[tuple[str, str | None], tuple[KeyTemplate, ...]] = {}
        for override in overrides:
            api_key = override.api_key and public_name(override.api_key)
            owner = ("api_key", api_key) if override.user is None else ("user", override.user)
            self.overrides[owner] = key_templates(rule, override.limits)
        named = [name for name in SUBJECTS if name in rule.per]
        self.per = (*named, *(name for name in rule.per if name not in named and name != "global"))

    def calendar_meters(self) -> Iterable[Meter]:
        """All meters whose window depends on a calendar."""
        for templates in (self.templates, *self.by_tier.values(), *self.overrides.values()):
            yield from (template.meter for template in templates if template.meter.is_calendar)


class BoundRule:
    """A compiled rule for requests of one pattern and tier."""

    __slots__ = (
        "_always",
        "_calendars",
        "_failure_policy",
        "_has_prices",
        "_is_held",
        "_others",
        "_overrides",
        "_subject",
        "_templates",
        "counted_pattern",
        "is_watched",
        "rule",
    )

    def __init__(self, compiled: CompiledRule, calendars: Calendars, pattern: str, tier: str | None) -> None:
        """Choose the limits and the parts of the key."""
        self.rule = rule = compiled.rule
        self.is_watched = rule.action is Action.LOG
        self.counted_pattern = pattern if "endpoint" in compiled.per else None
        """Where each pattern of the rule has counters of its own."""
        self._calendars = calendars
        self._has_prices = bool(rule.cost)
        self._failure_policy = failure_policy_of(
            rule.on_store_error, rule.wait_replicas, rule.on_overload, rule.spread, rule.on_shortfall
        )
        self._is_held = rule.algorithm is Algorithm.CONCURRENCY
        self._templates = compiled.by_tier.get(tier, ()) if compiled.by_tier else compiled.templates
        self._overrides = compiled.overrides
        parts = [_part(name, pattern) for name in compiled.per]
        self._subject = parts[0] if parts else None
        self._others = tuple(parts[1:])
        self._always: tuple[Bound, ...] = ()
        """The hits of all requests, if they depend on nothing in the request."""
        if not (parts or self._has_prices or self._overrides or self._is_held or any(compiled.calendar_meters())):
            policy = self._failure_policy
            self._always = tuple(
                Bound(Hit(f"rl:{{g={rule.id}{middle}", meter, 1, failure_policy=policy), rule, name)
                for middle, meter, name in self._templates
            )

    @property
    def has_exceptions(self) -> bool:
        """Whether some users or API keys have limits of their own."""
        return bool(self._overrides)

    def bind(
        self,
        request: Request,
        address: Address | None,
        cost: int | None,
        names: dict[KeyPart, str],
        bounds: list[Bound],
        own: OwnLimits | None,
    ) -> bool:
        """Append one bound hit for each limit; False if there is none, so that the rule counts nothing.

        `names` keeps what was read off the request already, for other rules that count per the same;
        `own` are the request's limits.
        """
        if self._always and cost is None and own is None:
            bounds += self._always
            return True
        templates = self._templates if own is None and not self._overrides else self._templates_for(request, own)
        if not templates:
            return False
        rule, subject, rest = self.rule, self._subject, ""
        if subject is None:
            tag = f"g={rule.id}"
        else:
            tag = names.get(subject) or names.setdefault(subject, subject(request, address))
        for part in self._others:
            rest += f"|{names.get(part) or names.setdefault(part, part(request, address))}"
        if cost is None:
            cost = rule.cost_of(method_of(request)) if self._has_prices else 1
        holder = new_id() if self._is_held else None  # each request holds slots of its own
        failure_policy = self._failure_policy
        for middle, meter, policy in templates:
            current = self._calendars.current(meter) if meter.is_calendar else meter
            # every field there is
            hit = _new(Hit, (f"rl:{{{tag}{middle}{rest}", current, cost, holder, None, False, failure_policy))
            bounds.append(_new(Bound, (hit, rule, policy)))
        return True

    def _templates_for(self, request: Request, own: OwnLimits | None) -> tuple[KeyTemplate, ...]:
        """The first that exist: the user's own limits, the API key's own, those of all other callers.

        Of each, those on record come before those in the rule set.
        """
        for owner, name, special in (
            ("user", request.user, own and own.user),
            ("api_key", request.api_key and public_name(request.api_key), own and own.api_key),
        ):
            templates = special.templates(self.rule, self._calendars) if special else None
            if templates is None:
                templates = self._overrides.get((owner, name)) if name else None
            if templates is not None:
                return templates
        return self._templates
