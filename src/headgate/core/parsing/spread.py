"""From data to `Spread`: a word, shards or regions."""

from __future__ import annotations

from math import gcd
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.core.parsing.fields import name_problem
from headgate.core.shards import MAX_SHARDS
from headgate.core.spread import SPREAD_WORDS, RegionMode, Spread, SpreadMode
from headgate.core.units import MAX_AMOUNT
from headgate.errors import short_repr

if TYPE_CHECKING:
    from headgate.core.parsing.fields import Fields

_SPREAD_FIELDS: Final = ("shards", "regions", "home", "shares")


def spread(fields: Fields) -> Spread:
    """What stands under `spread`: a word, shards or regions."""
    data = fields.data.get("spread")
    if data is None:
        return Spread()
    if isinstance(data, str):
        if data in SPREAD_WORDS:
            return Spread(SpreadMode(data))
        fields.problem(f"{short_repr(data)} is not one of exact, leased, auto, {{shards: N}}, {{regions: …}}", "spread")
        return Spread()
    given = fields.below("spread", _SPREAD_FIELDS)
    if given.has("shards") == given.has("regions"):
        if given.is_mapping:
            given.problem("write either shards or regions, as in {shards: 4} or {regions: gossip}")
        return Spread()
    return _regions(given) if given.has("regions") else _shards(given)


def _shards(given: Fields) -> Spread:
    for name in ("home", "shares"):
        if given.has(name):
            given.problem("has no effect with shards; leave it out", name)
    return Spread(SpreadMode.SHARDS, shards=given.whole("shards", 1, 1, MAX_SHARDS))


def _regions(given: Fields) -> Spread:
    known = len(given.problems)
    mode = given.choice("regions", RegionMode, RegionMode.CENTRAL)
    if len(given.problems) > known:
        return Spread()
    shares = _shares(given)
    if mode is RegionMode.SPLIT and given.data.get("shares") in (None, {}):
        given.problem("'split' needs the shares of the regions, as in {eu: 2, us: 1}", "shares")
    at_home = mode in {RegionMode.CENTRAL, RegionMode.BORROW}
    if at_home and not given.has("home"):
        given.problem(f"{mode.value!r} needs the home region, as in home: eu", "home")
    for name, has_effect in (("home", at_home), ("shares", not at_home)):
        if given.has(name) and not has_effect:
            given.problem(f"has no effect with {mode.value!r}; leave it out", name)
    home = given.text("home", None, name_problem)
    return Spread(SpreadMode.REGIONS, regions=mode, home=home, shares=MappingProxyType(shares))


def _shares(given: Fields) -> dict[str, int]:
    """The shares of regions, as whole numbers; fractions have to add up to 1."""
    shares = given.mapping("shares")
    fractions: dict[str, int] = {}
    for region, share in shares.items():
        if wrong := name_problem(region):
            given.problem(wrong, "shares", region)
        is_fraction = isinstance(share, float) and 0 < share < 1
        if isinstance(share, bool) or not (is_fraction or (isinstance(share, int) and 0 < share <= MAX_AMOUNT)):
            wrong = f"a share is a whole number from 1 to {MAX_AMOUNT}, or a fraction, not {short_repr(share)}"
            given.problem(wrong, "shares", region)
        elif is_fraction:
            fractions[region] = round(share * MAX_AMOUNT)
    if fractions and len(fractions) == len(shares) and sum(fractions.values()) == MAX_AMOUNT:
        common = gcd(*fractions.values())
        return {region: fraction // common for region, fraction in fractions.items()}
    if fractions:
        given.problem("write all shares as fractions that add up to 1, or all as whole numbers", "shares")
    return dict(shares)
