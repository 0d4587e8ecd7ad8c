"""A configuration of envoyproxy/ratelimit that is imported decides as the original does, on any tree and any request.

The original is modelled here in its own terms (`GetLimit` in its src/config/config_impl.go): a walk down maps from
``key_value`` and ``key``, a limit at exactly the depth of the descriptor, a counter for each descriptor and window.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.memory import MemoryStore
from headgate.adapters.zones import zone
from headgate.controlplane.envoy_import import from_envoy_ratelimit
from headgate.core.meter import Calendars
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.units import SECOND
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.snapshots import Snapshots
from headgate.edge.rls.decisions import RateLimits, prepare
from headgate.edge.rls.messages import Code, Descriptor, RateLimitRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANCES: Final = {"": 0.6, "1": 0.6, "2": 0.3, "*": 0.15, "1*": 0.1}
SECONDS: Final = {"second": 1, "minute": 60, "day": 86_400, "week": 604_800, "month": 2_592_000, "year": 31_536_000}

Entries = tuple[tuple[str, str], ...]


class Original:
    """The service of envoyproxy/ratelimit, as far as it decides."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._tree = self._node(config, "")
        self._counts: Counter[tuple[Any, ...]] = Counter()

    def _node(self, data: dict[str, Any], path: str) -> dict[str, Any]:
        below = {}
        for index, each in enumerate(data.get("descriptors", [])):
            name = f"{each['key']}_{each['value']}" if each.get("value") else each["key"]
            below[name] = self._node(each, f"{path}.descriptors[{index}]".lstrip("."))
        return {"data": data, "path": path, "below": below, "stars": [name for name in below if name.endswith("*")]}

    def walk(self, entries: Entries) -> list[dict[str, Any]]:
        """The descriptors of the configuration that the lookup goes through; as many as entries if it gets there."""
        node, walked = self._tree, []
        for key, value in entries:
            name = f"{key}_{value}"
            found = node["below"].get(name)
            if found is None:
                star = next((each for each in node["stars"] if name.startswith(each.removesuffix("*"))), None)
                found = node["below"].get(star) or node["below"].get(key)
            if found is None:
                break
            walked.append(found)
            node = found
        return walked

    def is_over_limit(self, entries: Entries, now: int) -> bool:
        """Count a descriptor and answer."""
        walked = [node["data"] for node in self.walk(entries)]
        if len(walked) < len(entries) or "rate_limit" not in walked[-1]:
            return False
        limit = walked[-1]["rate_limit"]
        if limit.get("unlimited"):
            return False
        # Values that share a threshold are counted under their pattern, at whatever depth they stand.
        counted = [
            (key, data["value"]) if data.get("share_threshold") else (key, value)
            for (key, value), data in zip(entries, walked, strict=True)
        ]
        window = (*counted, now // SECONDS[limit["unit"]])
        self._counts[window] += 1
        return self._counts[window] > limit["requests_per_unit"] and not walked[-1].get("shadow_mode", False)


def _descriptors(random: Random, depth: int = 1) -> list[dict[str, Any]]:
    """A tree with many ways that compete: few keys, few values, limits that are soon used up."""
    names = [(key, value) for key in "ab" for value in ("", "1", "2", "*", "1*") if random.random() < CHANCES[value]]
    made = []
    for key, value in names:
        each: dict[str, Any] = {"key": key} | ({"value": value} if value else {})
        if random.random() < 0.7:
            each["rate_limit"] = {
                "unit": random.choice([*SECONDS]),
                "requests_per_unit": random.choice([0, 1, 1, 2, 3]),
            }
            if random.random() < 0.1:
                each["rate_limit"] = {"unlimited": True}
            elif random.random() < 0.2:
                each["shadow_mode"] = True
        if value == "*" and random.random() < 0.5:
            each["share_threshold"] = True
        if depth < 3 and random.random() < 0.6:
            each["descriptors"] = _descriptors(random, depth + 1)
        made.append(each)
    random.shuffle(made)
    return made


def _requests(random: Random) -> Iterator[tuple[Entries, int]]:
    """Descriptors of one to three different keys, and the seconds before each."""
    for _ in range(60):
        keys = random.sample("abc", random.choice([1, 2, 2, 3]))
        entries = tuple((key, random.choice(["1", "2", "3", "12"])) for key in keys)
        yield entries, random.choice([0] * 20 + [1, 40, 86_400, 700_000])


@given(seed=st.integers(0, 2**32))
def test_imported_rules_decide_as_the_original_does(seed: int) -> None:
    """Whatever the notes do not name is decided alike: by the same limit, at the same depth, in the same window."""
    random = Random(seed)
    descriptors = _descriptors(random)
    config = {"domain": "d", "descriptors": descriptors}
    original = Original(config)
    made, notes = from_envoy_ratelimit(config)
    noted = [note.partition(": ")[0] for note in notes if note.startswith("descriptors[")]
    now = 1_700_000_000

    def clock() -> int:
        return now * SECOND

    snapshots = Snapshots(zone, clock)
    snapshots.publish(parse_rule_set(made))
    service = RateLimits(Limiter(MemoryStore(clock), snapshots, BareKeys(Calendars(zone, clock))))
    for entries, seconds in _requests(random):
        now += seconds
        walked = [node["path"] for node in original.walk(entries)]
        # A request whose way is noted may be decided otherwise, and would shift the counts of later ones.
        if any(path in noted for path in walked):
            continue
        code = asyncio.run(service.decide(prepare(RateLimitRequest("d", (Descriptor(entries),))))).overall_code
        assert (code is Code.OVER_LIMIT) is original.is_over_limit(entries, now), (entries, made["rules"])
