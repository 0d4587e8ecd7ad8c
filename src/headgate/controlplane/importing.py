"""Rule sets from the formats of others, with notes about what could not be carried over."""

from __future__ import annotations

from headgate.controlplane.envoy_import import from_envoy_ratelimit
from headgate.controlplane.tier_map_import import from_tier_map

__all__ = ["from_envoy_ratelimit", "from_tier_map"]
