"""What a hit asks of the store beyond counting."""

from __future__ import annotations

from headgate.core.decision import Decision, Hit, Source
from headgate.core.degraded import FromReplica
from headgate.core.failure_policy import FailurePolicy, OnStoreError, for_replicas
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.spread import Spread, SpreadMode
from headgate.core.units import HOUR


def _hit(policy: FailurePolicy | None = None) -> Hit:
    return Hit("k", Meter(Rate(5, HOUR), Algorithm.FIXED_WINDOW), 1, failure_policy=policy)


def test_a_replica_may_answer_hits_on_counters_in_one_place() -> None:
    """Everything else that the rule requires stays as it is."""
    leased = FailurePolicy(spread=Spread(SpreadMode.LEASED))
    plain, denying, spent = for_replicas([_hit(), _hit(FailurePolicy(OnStoreError.DENY)), _hit(leased)])
    assert plain.failure_policy == FailurePolicy(may_be_stale=True)
    assert denying.failure_policy == FailurePolicy(OnStoreError.DENY, may_be_stale=True)
    assert spent.failure_policy == leased._replace(may_be_stale=True)


def test_counters_in_parts_are_looked_up_on_their_primaries() -> None:
    """What a peek finds out about parts decides later requests, so it must not be stale."""
    in_parts = _hit(FailurePolicy(spread=Spread(SpreadMode.SHARDS, shards=4)))
    assert for_replicas([in_parts]) == [in_parts]


def test_a_decision_of_a_replica_says_so() -> None:
    """Its source is `replica`."""
    assert FromReplica(True, 1, 0, 0, 0, 0, 0).source is Source.REPLICA  # noqa: FBT003 (the first field)
    assert Decision(True, 1, 0, 0, 0, 0, 0).source is Source.STORE  # noqa: FBT003 (the first field)
