"""How careful a rule is about its counters: what holds while they are out of reach, and who must have them."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class OnStoreError(StrEnum):
    """What a rule answers while its counters cannot be reached."""

    ALLOW = "allow"
    DENY = "deny"
    LOCAL = "local"


class Safety(NamedTuple):
    """What a hit asks of the store, beyond counting."""

    on_error: OnStoreError = OnStoreError.ALLOW
    replicas: int = 0
    """How many replicas must have the count before the answer is given."""


def safety_of(on_error: OnStoreError, replicas: int) -> Safety | None:
    """What a hit carries; None for what is usual, so that nobody has to look."""
    safety = Safety(on_error, replicas)
    return None if safety == Safety() else safety
