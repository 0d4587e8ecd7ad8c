"""Configurations of other limiters, by the names of their forms, and what makes rules of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.envoy_import import from_envoy_ratelimit
from headgate.controlplane.tier_map_import import from_tier_map

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

IMPORTERS: Final[Mapping[str, Callable[[object], tuple[dict[str, Any], list[str]]]]] = {
    "envoy": from_envoy_ratelimit,
    "tiers": from_tier_map,
}
"""Each returns a rule set, and notes about what could not be carried over."""
