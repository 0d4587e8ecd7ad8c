"""What is on record about those who ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.core.own_limits import NO_LIMITS, LimitsByRule

if TYPE_CHECKING:
    from headgate.core.units import Micros


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user as the data plane needs it."""

    tier: str | None = None
    limits: LimitsByRule = NO_LIMITS


@dataclass(frozen=True, slots=True)
class KnownKey:
    """An API key as the data plane needs it; the key itself is nowhere."""

    id: str
    user: str | None = None
    tenant: str | None = None
    tier: str | None = None
    limits: LimitsByRule = NO_LIMITS
    expires: Micros | None = None
    revoked: bool = False
