"""Decisions made without the store, by a replica, or counted by too few replicas: each kind is a class that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Decision, Source
from headgate.core.failure_policy import OnShortfall, OnStoreError
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from headgate.core.decision import Hit, Stamp
    from headgate.core.units import Micros

RETRY_AFTER: Final[Micros] = SECOND
"""The wait of a caller that is refused only because the store is unavailable; the store is probed as often."""


class LocalStamp(NamedTuple):
    """The stamp of an admission that was counted in this process only."""

    stamp: Stamp


class DegradedAllow(Decision):
    """Admitted without counting, because the store is unavailable and the rule says `allow`."""

    __slots__ = ()

    @property
    def source(self) -> Source:
        """See `Decision.source`."""
        return Source.DEGRADED_ALLOW


class DegradedDeny(Decision):
    """Refused, because the store is unavailable and the rule says `deny`."""

    __slots__ = ()

    @property
    def source(self) -> Source:
        """See `Decision.source`."""
        return Source.DEGRADED_DENY


class DegradedLocal(Decision):
    """Decided by this process's share of the limit, because the store is unavailable and the rule says `local`."""

    __slots__ = ()

    @property
    def source(self) -> Source:
        """See `Decision.source`."""
        return Source.DEGRADED_LOCAL


class FromReplica(Decision):
    """Looked up on a replica, which may be behind its primary. Only peeks are answered so."""

    __slots__ = ()

    @property
    def source(self) -> Source:
        """See `Decision.source`."""
        return Source.REPLICA


class UnderReplicated(Decision):
    """Counted, but by fewer replicas than the rule requires."""

    __slots__ = ()

    @property
    def is_replicated(self) -> bool:
        """See `Decision.is_replicated`."""
        return False


class DeniedForReplicas(DegradedDeny):
    """Refused, because fewer replicas have the count than the rule requires and it says `deny`."""

    __slots__ = ()

    @property
    def is_replicated(self) -> bool:
        """See `Decision.is_replicated`."""
        return False


def falls_short(hit: Hit, decision: Decision) -> bool:
    """Whether to revoke an admission, because too few replicas have it. What was used already is only marked."""
    policy = hit.failure_policy
    return (
        policy is not None
        and policy.on_shortfall is OnShortfall.DENY
        and not decision.is_replicated
        and hit.cost > 0
        and not hit.forced
    )


def denied_for_replicas(decision: Decision) -> Decision:
    """The refusal of a counter that stands like this: replicas are waited for again after as long as an outage."""
    return DeniedForReplicas(*decision._replace(allowed=False, retry_after=RETRY_AFTER, delay=0))


def without_counting(hit: Hit, now: Micros) -> Decision:
    """The answer of a rule that says `allow` or `deny`, or nothing."""
    is_denied = hit.failure_policy is not None and hit.failure_policy.on_error is OnStoreError.DENY
    return denied(hit, now) if is_denied else allowed(hit, now)


def allowed(hit: Hit, now: Micros) -> Decision:
    """The counter is unknown, so the answer is that of one that was never used."""
    return DegradedAllow(True, hit.meter.capacity, 0, 0, 0, hit.key, now)  # noqa: FBT003 (the first field)


def denied(hit: Hit, now: Micros) -> Decision:
    """The counter is unknown, so the caller is told to retry after the next probe of the store."""
    return DegradedDeny(False, 0, RETRY_AFTER, RETRY_AFTER, 0, hit.key, now)  # noqa: FBT003 (the first field)


def local(hit: Hit, decision: Decision) -> Decision:
    """A decision of this process alone. A cost above its share may still pass once the store has recovered."""
    if decision.retry_after is None and hit.cost <= hit.meter.capacity:
        decision = decision._replace(retry_after=RETRY_AFTER)
    stamped = decision._replace(stamp=LocalStamp(decision.stamp))  # type: ignore[arg-type] # only Guarded reads it
    return DegradedLocal(*stamped)
