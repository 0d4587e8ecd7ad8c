"""Rule sets from the formats of others, with notes about what could not be carried over."""

from __future__ import annotations

from typing import Any


def from_envoy_ratelimit(data: object) -> tuple[dict[str, Any], list[str]]:
    """A rule set from a configuration of envoyproxy/ratelimit, and notes.

    Raises `InvalidFields` where it is not such a configuration.
    """
    raise NotImplementedError


def from_tier_map(data: object) -> tuple[dict[str, Any], list[str]]:
    """A rule set from ``{"rules": [{"endpoint", "method", "limits": {"free": {"requests", …}}}]}``, and notes.

    Each entry of `limits` becomes a rule. Raises `InvalidFields` where it is not of that form.
    """
    raise NotImplementedError
