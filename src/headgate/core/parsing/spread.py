"""Where the parts of a rule's limit are held: exact, leased, auto, in shards, between regions."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.core.parsing.fields import name_problem
from headgate.core.rule import RegionMode, Spread, SpreadMode
from headgate.core.units import MAX_AMOUNT
from headgate.errors import shown

if TYPE_CHECKING:
    from headgate.core.parsing.fields import Fields

_FIELDS: Final = ("shards", "regions", "home", "shares")
_WORDS: Final = (SpreadMode.EXACT, SpreadMode.LEASED, SpreadMode.AUTO)
_MOST_SHARDS: Final = 1_024


def spread(fields: Fields) -> Spread:
    """What stands under `spread`: a word, shards or regions."""
    data = fields.data.get("spread")
    if data is None:
        return Spread()
    if isinstance(data, str):
        if data in _WORDS:
            return Spread(SpreadMode(data))
        fields.problem(f"{shown(data)} is not one of exact, leased, auto, {{shards: N}}, {{regions: …}}", "spread")
        return Spread()
    given = fields.below("spread", _FIELDS)
    if given.has("shards") == given.has("regions"):
        if given.is_mapping:
            given.problem("give either shards or regions")
        return Spread()
    return _regions(given) if given.has("regions") else _shards(given)


def _shards(given: Fields) -> Spread:
    for name in ("home", "shares"):
        if given.has(name):
            given.problem("goes with regions, not with shards", name)
    return Spread(SpreadMode.SHARDS, shards=given.whole("shards", 1, 1, _MOST_SHARDS))


def _regions(given: Fields) -> Spread:
    known = len(given.problems)
    mode = given.choice("regions", RegionMode, RegionMode.CENTRAL)
    if len(given.problems) > known:
        return Spread()
    shares = given.mapping("shares")
    for region, share in shares.items():
        if wrong := name_problem(region):
            given.problem(wrong, "shares", region)
        if isinstance(share, bool) or not isinstance(share, int) or not 0 < share <= MAX_AMOUNT:
            given.problem(f"a share is a whole number from 1 to {MAX_AMOUNT}, not {shown(share)}", "shares", region)
    if mode is RegionMode.SPLIT and given.data.get("shares") in (None, {}):
        given.problem("'split' needs the shares of the regions, as in {eu: 2, us: 1}", "shares")
    if mode in {RegionMode.CENTRAL, RegionMode.BORROW} and not given.has("home"):
        given.problem(f"{mode.value!r} needs the home region", "home")
    home = given.text("home", None, name_problem)
    return Spread(SpreadMode.REGIONS, regions=mode, home=home, shares=MappingProxyType(dict(shares)))
