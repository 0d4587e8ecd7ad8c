"""Admissions as messages, by hand: what Envoy is answered most, in a fraction of the time.

`write_answer(response_of(…))` says what has to come out. What is the same for every admission by one
limit is put together once, and the numbers are written in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core import headers
from headgate.core.decision import Decision
from headgate.core.headers import RESET_AFTER, Reset
from headgate.core.lease import FromLease
from headgate.core.units import whole_seconds
from headgate.edge.rls import protobuf
from headgate.edge.rls.decisions import current_limit
from headgate.edge.rls.messages import MAX_UINT32, Code

if TYPE_CHECKING:
    from headgate.core.meter import Meter
    from headgate.core.verdict import Verdict

_ADMITTED: Final = (Decision, FromLease)
_MAX_CACHED: Final = 4_096
_MAX_DIGITS: Final = 24


def _by_digits(name: str) -> tuple[bytes, ...]:
    """How a header begins whose value is a number, by how many digits that has."""
    return tuple(protobuf.header(name, b"0" * size)[: -size or None] for size in range(_MAX_DIGITS))


_REMAINING: Final = _by_digits("x-ratelimit-remaining")
_RESET: Final = _by_digits("x-ratelimit-reset")


class _Phrases(NamedTuple):
    """What never changes about the admissions of one cost by one limit."""

    policy: str
    status: bytes
    """The status up to what is left."""
    limit: bytes
    """`x-ratelimit-limit`."""
    cost_and_policy: bytes
    """`x-ratelimit-cost` and `ratelimit-policy`."""
    standing: bytes
    """The value of `ratelimit`, up to what is left."""


class Admissions:
    """Writes admissions; remembers the phrases that it has used."""

    def __init__(self, reset: Reset = Reset.NEXT) -> None:
        """Nothing is remembered yet. `reset` is what `X-RateLimit-Reset` says."""
        self._reset_after = RESET_AFTER[reset]
        self._phrases: dict[tuple[Meter, int], _Phrases] = {}

    def message(self, verdict: Verdict) -> bytes | None:
        """The answer to a plain admission by one limit; None for every other verdict."""
        plan, decisions = verdict.plan, verdict.decisions
        if not verdict.allowed or plan.shadows or len(decisions) != 1:
            return None
        decision = decisions[0]
        if decision.__class__ not in _ADMITTED or decision[4]:  # reached in another way, or to be held back
            return None
        _, left, reset_after, _, _, _, now = decision
        (_, meter, cost, _, _, _, _), _, policy = plan.enforced[0]
        phrases = self._phrases.get((meter, cost))
        # A limit of a user's own stays the same object when the rule that it belongs to becomes another one.
        if phrases is None or phrases.policy != policy:
            phrases = self._remember(meter, cost, policy)
        until_reset = self._reset_after(meter, decision)
        status = phrases.status + protobuf.standing(min(left, MAX_UINT32), until_reset)
        remaining = b"%d" % left
        reset = b"%d" % whole_seconds(now + until_reset)
        standing = b"%b%d%b" % (phrases.standing, left, headers.within(reset_after).encode())
        return b"".join(
            (
                _OK,
                protobuf.field(2, status),
                phrases.limit,
                _REMAINING[len(remaining)],
                remaining,
                _RESET[len(reset)],
                reset,
                phrases.cost_and_policy,
                protobuf.header("ratelimit", standing),
            )
        )

    def _remember(self, meter: Meter, cost: int, policy: str) -> _Phrases:
        if len(self._phrases) >= _MAX_CACHED:
            self._phrases.clear()
        self._phrases[meter, cost] = made = _Phrases(
            policy,
            protobuf.number(1, Code.OK) + protobuf.limit(current_limit(policy, meter)),
            protobuf.header("x-ratelimit-limit", b"%d" % meter.amount),
            protobuf.header("x-ratelimit-cost", b"%d" % cost)
            + protobuf.header("ratelimit-policy", headers.policy(meter, policy).encode()),
            f'"{policy}";r='.encode(),
        )
        return made


_OK: Final = protobuf.number(1, Code.OK)
