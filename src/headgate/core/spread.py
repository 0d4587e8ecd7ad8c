"""Where the parts of a limit are held: the rule field `spread`, as a value that its hits carry to the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class SpreadMode(StrEnum):
    """Whether a counter is one number in one place, or parts of it are held elsewhere."""

    EXACT = "exact"
    LEASED = "leased"
    AUTO = "auto"
    SHARDS = "shards"
    REGIONS = "regions"


class RegionMode(StrEnum):
    """How regions share one limit."""

    CENTRAL = "central"
    SPLIT = "split"
    GOSSIP = "gossip"
    BORROW = "borrow"


_DOZEN: Final = 12


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the parts of a limit are held."""

    mode: SpreadMode = SpreadMode.EXACT
    shards: int = 1
    regions: RegionMode | None = None
    home: str | None = None
    shares: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def parts(self) -> int:
        """How many keys a counter with `shards` has: at least N, and the same number on each of 2, 3, 4 or 6 servers.

        8 parts on 3 servers would be 2, 3 and 3: a used-up limit would load one of them a quarter less.
        """
        return self.shards if _DOZEN % self.shards == 0 else -(-self.shards // _DOZEN) * _DOZEN


SPREAD_WORDS: Final = (SpreadMode.EXACT, SpreadMode.LEASED, SpreadMode.AUTO)
"""Those that need nothing more than their word."""
EXACT: Final = Spread()
