from __future__ import annotations

import pytest

from headgate.adapters import zones
from headgate.core import lease
from headgate.core.decision import Decision, Hit, Source
from headgate.core.degraded import DegradedDeny, UnderReplicated
from headgate.core.failure_policy import FailurePolicy, OnOverload, OnStoreError
from headgate.core.lease import LeaseBlock, block_size, grant_policy, is_grant, is_leasable, life
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.spread import Spread, SpreadMode
from headgate.core.units import MILLISECOND, MINUTE, SECOND
from headgate.testing.clock import NEW_YEAR

LEASED = FailurePolicy(spread=Spread(SpreadMode.LEASED))
AUTO = FailurePolicy(spread=Spread(SpreadMode.AUTO))
KEY = "rl:{g=api}:api:fw1m"


def meter(limit: str = "800/minute", algorithm: Algorithm = Algorithm.FIXED_WINDOW) -> Meter:
    parsed = Meter(parse_limit(limit), algorithm)  # type: ignore[arg-type] # a rate
    return parsed.at(NEW_YEAR, zones.zone) if parsed.is_calendar else parsed


def decision(remaining: int = 800, at: int = NEW_YEAR, *, allowed: bool = True, delay: int = 0) -> Decision:
    """What the store answers at new year, when a minute and a day begin."""
    return Decision(allowed, remaining, MINUTE, 0, delay, NEW_YEAR, at)


@pytest.mark.parametrize(
    ("limit", "algorithm", "after", "lives"),
    [
        ("10/minute", Algorithm.FIXED_WINDOW, 0, SECOND),
        ("10/minute", Algorithm.FIXED_WINDOW, 59_400 * MILLISECOND, 600 * MILLISECOND),
        ("10/100ms", Algorithm.FIXED_WINDOW, 30 * MILLISECOND, 70 * MILLISECOND),
        ("10/calendar day", Algorithm.FIXED_WINDOW, 0, SECOND),
        ("10/minute", Algorithm.SLIDING_WINDOW_COUNTER, 0, 600 * MILLISECOND),
        ("10/hour", Algorithm.TOKEN_BUCKET, 0, SECOND),
        ("10/second", Algorithm.TOKEN_BUCKET, 0, 10 * MILLISECOND),
    ],
)
def test_a_block_lives_for_its_window_or_a_hundredth_of_the_period(
    limit: str, algorithm: Algorithm, after: int, lives: int
) -> None:
    """A block of a fixed window ends with it, others after a hundredth of the period, and all after a second."""
    assert life(meter(limit, algorithm), decision(at=NEW_YEAR + after)) == lives


@pytest.mark.parametrize(
    ("policy", "used", "remaining", "processes", "size"),
    [
        (LEASED, 1, 800, 1, 0),  # it was used once: nothing says that it is used again
        (LEASED, 2, 800, 1, 4),
        (LEASED, 30, 800, 1, 60),
        (LEASED, 300, 800, 1, 100),  # an eighth of what is left
        (LEASED, 300, 800, 10, 40),  # half of a tenth
        (LEASED, 300, 16, 1, 2),
        (LEASED, 300, 15, 1, 0),  # near the limit every request asks
        (AUTO, 15, 800, 1, 0),
        (AUTO, 16, 800, 1, 32),
    ],
)
def test_a_block_follows_demand_and_what_is_left(
    policy: FailurePolicy, used: int, remaining: int, processes: int, size: int
) -> None:
    """A block is twice what was used in a tenth of a second, and at most a share of what is left."""
    assert block_size(policy, used, meter(), decision(remaining), processes) == size


def test_a_block_that_lives_shorter_is_smaller() -> None:
    """What cannot be spent before the block ends is not asked for."""
    short = meter("800/second", Algorithm.SLIDING_WINDOW_COUNTER)
    assert block_size(LEASED, 100, short, decision(), 1) == 20
    assert block_size(LEASED, 100, meter(), decision(at=NEW_YEAR + MINUTE - MILLISECOND), 1) == 2


def test_a_block_is_answered_from_what_was_known_at_its_grant() -> None:
    """`remaining` is what the store said and what is left of the block; times go on from the grant."""
    block = LeaseBlock(Hit(KEY, meter(), 50), LEASED, decision(700), 100 * SECOND * 1_000, 101 * SECOND * 1_000)
    answer = block.answer(3, 103 * SECOND * 1_000)
    assert tuple(answer) == (True, 747, MINUTE - 2 * SECOND, 0, 0, NEW_YEAR, NEW_YEAR + 2 * SECOND)
    assert answer.source is Source.LEASE
    assert block.left == 50
    assert block.ends == 101 * SECOND * 1_000
    assert block.answer(0, 190 * SECOND * 1_000).reset_after == 0


def test_what_is_left_of_a_block_goes_back_once() -> None:
    """What is taken out to be given back cannot be spent or given back again."""
    block = LeaseBlock(Hit(KEY, meter(), 50), LEASED, decision(), 0, 0)
    block.left -= 20
    assert block.used_since_noted(1_000) == (20, 1_000)
    receipt = block.unspent()
    assert receipt is not None
    assert (receipt.key, receipt.amount, receipt.stamp, receipt.id) == (KEY, 30, NEW_YEAR, "")
    assert block.unspent() is None
    assert block.left == 0


@pytest.mark.parametrize(
    ("policy", "algorithm", "expected"),
    [
        (None, Algorithm.FIXED_WINDOW, False),
        (FailurePolicy(OnStoreError.DENY), Algorithm.FIXED_WINDOW, False),
        (LEASED, Algorithm.FIXED_WINDOW, True),
        (AUTO, Algorithm.TOKEN_BUCKET, True),
        (LEASED, Algorithm.SLIDING_WINDOW_LOG, False),
        (FailurePolicy(spread=Spread(SpreadMode.SHARDS, 8)), Algorithm.FIXED_WINDOW, False),
    ],
)
def test_which_hits_are_spent_from_blocks(
    policy: FailurePolicy | None, algorithm: Algorithm, *, expected: bool
) -> None:
    """Those of rules that say so, with an algorithm that can be leased."""
    assert is_leasable(Hit(KEY, meter("8/minute", algorithm), 1, failure_policy=policy)) is expected


def test_a_block_is_only_what_the_store_has_counted() -> None:
    """Denials, degraded answers, too few replicas and tokens of the future are no grants."""
    assert is_grant(decision())
    assert not is_grant(decision(allowed=False))
    assert not is_grant(decision(delay=1))
    assert not is_grant(DegradedDeny(*decision()))
    assert not is_grant(UnderReplicated(*decision()))


def test_without_the_store_there_is_no_block() -> None:
    """The hit that takes a block is denied in an outage, or, with `local`, noted in this process's share."""
    policy = FailurePolicy(OnStoreError.ALLOW, 2, OnOverload.DENY, Spread(SpreadMode.LEASED))
    assert grant_policy(policy) == FailurePolicy(OnStoreError.DENY, 2)
    assert grant_policy(policy._replace(on_error=OnStoreError.LOCAL)).on_error is OnStoreError.LOCAL
    assert lease.MIN_BLOCK > 1
