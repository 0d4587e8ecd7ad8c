"""The scenario of `headgate demo`: who calls, how often, and what; read from ``company.yaml``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters import yaml_text
from headgate.core.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

_FILE: Final = "company.yaml"
_PARCELS: Final = 5_000
_DAY: Final = 86_400
_BUSIEST: Final = 15 * 3_600
"""The second of a day, in UTC, at which customers work most."""
_NIGHT: Final = 0.35
_WEEKEND: Final = 0.6
_THURSDAY: Final = 4  # the first day of 1970, counted from Sunday
_SATURDAY: Final = 6


_network = cache(ip_network)


@dataclass(frozen=True, slots=True)
class Wave:
    """Traffic that comes and goes."""

    every: float
    lasts: float
    quiet: float
    """Which part of the traffic there is between two waves."""

    def factor(self, second: float) -> float:
        """By how much the traffic of a second differs from the average."""
        phase = second % self.every
        share = self.lasts / self.every
        # Half a sine, whose mean is 2/π; so all of the traffic, waves and quiet, has the mean 1.
        peak = (1 - self.quiet * (1 - share)) / share * math.pi / 2
        return peak * math.sin(math.pi * phase / self.lasts) if phase < self.lasts else self.quiet


@dataclass(frozen=True, slots=True)
class Caller:
    """A kind of caller."""

    name: str
    kind: str
    rate: float
    requests: Sequence[Mapping[str, Any]]
    ips: str
    users: Sequence[str] = ()
    tier: str | None = None
    key: str | None = None
    """The name of the API key that it sends."""
    wave: Wave | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    counts: bool = False
    """Whether ``{n}`` counts, where others draw a number."""

    @property
    def weights(self) -> list[float]:
        """How often each of its requests comes, relative to the others."""
        return [each.get("weight", 1) for each in self.requests]

    def expected(self, second: float, rate: float) -> float:
        """How many requests it makes in a second, if all callers together make `rate` times their usual number."""
        return rate * self.rate * (1.0 if self.wave is None else self.wave.factor(second))

    def draw(self, number: int, draw: Random) -> Request:
        """Its request of this number."""
        chosen = draw.choices(self.requests, self.weights)[0]
        network = _network(self.ips)
        n = number % _PARCELS if self.counts else draw.randrange(_PARCELS)
        return Request(
            user=draw.choice(self.users) if self.users else None,
            tier=self.tier,
            ip=str(network[draw.randrange(network.num_addresses)]),
            method=chosen.get("method", "GET"),
            path=chosen["path"].replace("{n}", str(10_000 + n)),
            attributes={name: text.replace("{n}", str(n)) for name, text in self.attributes.items()},
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """The company and its callers."""

    rule_set: Mapping[str, Any]
    """Rules and tiers, as a rules file has them."""
    earlier: Mapping[str, Mapping[str, Any]]
    """Fields of rules as they were at first, by rule."""
    overrides: Mapping[str, Mapping[str, str]]
    blocks: Sequence[Mapping[str, str]]
    tokens: Sequence[Mapping[str, str]]
    callers: Sequence[Caller]

    @property
    def rate(self) -> float:
        """Requests a second on average."""
        return sum(caller.rate for caller in self.callers)

    def first_rule_set(self) -> dict[str, Any]:
        """The rules as they were at first."""
        rules = [{**rule, **self.earlier.get(rule["name"], {})} for rule in self.rule_set["rules"]]
        return {**self.rule_set, "rules": rules}

    def users(self) -> dict[str, str]:
        """All users with their tiers."""
        return {user: caller.tier or "" for caller in self.callers for user in caller.users}

    def keys(self) -> dict[str, str]:
        """The names of API keys, with their users."""
        return {caller.key: caller.users[0] for caller in self.callers if caller.key is not None}

    def requests(self, second: int, rate: float, draw: Random) -> Iterator[tuple[Caller, Request]]:
        """What all callers send in one second, in no order; the same for the same second and the same `draw`."""
        for caller in self.callers:
            expected = caller.expected(second, rate)
            for number in range(int(expected) + (draw.random() < expected % 1)):
                yield caller, caller.draw(second * 100 + number, draw)


def usual_share(second: int) -> float:
    """How busy customers are at a time, by hour and day of the week; 1 at most."""
    hour = 0.5 + 0.5 * math.cos(2 * math.pi * (second % _DAY - _BUSIEST) / _DAY)
    day = (second // _DAY + _THURSDAY) % 7
    return (_NIGHT + (1 - _NIGHT) * hour) * (_WEEKEND if day in {0, _SATURDAY} else 1.0)


def read_scenario() -> Scenario:
    """The scenario that comes with the package."""
    data: Any = yaml_text.parse(files(__package__).joinpath(_FILE).read_text(encoding="utf-8")).data
    rule_set = {"tiers": data["tiers"], "rules": data["rules"]}
    callers = [_caller(each) for each in data["callers"]]
    return Scenario(rule_set, data["earlier"], data["overrides"], data["blocks"], data["tokens"], callers)


def _caller(data: dict[str, Any]) -> Caller:
    data = dict(data)
    many, users, wave = data.pop("many", 1), data.pop("users", []), data.pop("wave", None)
    if isinstance(users, str):
        users = [users.replace("{n}", str(number)) for number in range(1, many + 1)]
    return Caller(**data, users=tuple(users), wave=None if wave is None else Wave(**wave))
