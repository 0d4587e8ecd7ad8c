"""How careful a rule is about its counters: what holds while they are out of reach, and who must have them."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class OnStoreError(StrEnum):
    """What a rule answers while its counters cannot be reached."""

    ALLOW = "allow"
    DENY = "deny"
    LOCAL = "local"


class OnOverload(StrEnum):
    """What becomes of a check while this process has all in flight that its store can answer in time.

    None of them admits anybody: a crowd does not get in because it is a crowd.
    """

    WAIT = "wait"
    """It waits for its turn; in the decision service no longer than a setting says."""
    DENY = "deny"
    """It fails at once with `Overloaded`, and nothing is counted."""


class FailurePolicy(NamedTuple):
    """What a hit asks of the store, beyond counting."""

    on_error: OnStoreError = OnStoreError.ALLOW
    replicas: int = 0
    """How many replicas must have the count before the answer is given."""
    on_overload: OnOverload = OnOverload.WAIT


def failure_policy_of(
    on_error: OnStoreError, replicas: int = 0, on_overload: OnOverload = OnOverload.WAIT
) -> FailurePolicy | None:
    """What a hit carries; None for what is usual, so that the hot path has nothing to look at."""
    failure_policy = FailurePolicy(on_error, replicas, on_overload)
    return None if failure_policy == FailurePolicy() else failure_policy
