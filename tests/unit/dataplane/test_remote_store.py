"""A store that is not in this process: checks wait for it, together, and what is only watched changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import InvalidRequest, Overloaded, Request
from headgate.adapters.memory import MemoryStore
from headgate.core.blocklist import BlockList
from headgate.core.decision import Decision, Source
from headgate.core.parsing.fields import MAX_ENTRIES
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.identity import Companion, Identity
from headgate.dataplane.limiter import Limiter
from headgate.errors import InvalidRules
from headgate.testing import FakeClock
from headgate.wiring import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Hit, Receipt

RULES: list[dict[str, Any]] = [
    {"name": "user", "per": ["user"], "limits": "2/day"},
    {"name": "watched", "per": ["user"], "limits": "1/day", "action": "log"},
]


class Remote:
    """A store with the five methods of `CounterStore` and no others; it counts its trips."""

    def __init__(self) -> None:
        self.memory = MemoryStore(FakeClock())
        self.trips: list[int] = []
        self.is_overloaded_for: set[str] = set()

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self.trips.append(len(hits))
        await asyncio.sleep(0)
        if any(name in hit.key for hit in hits for name in self.is_overloaded_for):
            raise Overloaded
        return self.memory.take_now(hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        return self.memory.peek_now(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self.memory.give_back_now(receipts)

    async def reset(self, keys: Sequence[str]) -> None:
        await self.memory.reset(keys)

    async def close(self) -> None:
        await self.memory.close()


def limiter_on(store: Remote, rules: list[dict[str, Any]]) -> Limiter:
    _, snapshots, bare_keys, follower = parts("memory://", {"rules": rules})
    return Limiter(store, snapshots, bare_keys, follower)


def test_many_checks_wait_together_and_are_decided_in_order() -> None:
    """All of them are on their way before the first is answered."""

    async def scenario() -> list[bool]:
        limiter = limiter_on(Remote(), RULES[:1])
        assert limiter.check_now is None
        return [verdict.allowed for verdict in await limiter.check_many([Request(user="u")] * 4)]

    assert asyncio.run(scenario()) == [True, True, False, False]


def test_a_watched_rule_that_is_shed_leaves_the_verdict_as_it_is() -> None:
    """Its decision is marked as degraded; the request was admitted by the rules that count."""

    async def scenario() -> None:
        store = Remote()
        store.is_overloaded_for.add("watched")
        verdict = await limiter_on(store, RULES).check(Request(user="u"))
        assert verdict.allowed
        assert verdict.source is Source.STORE
        assert [each.decision.source for each in verdict.findings] == [Source.STORE, Source.DEGRADED_ALLOW]

    asyncio.run(scenario())


def test_a_caller_that_is_no_request_is_refused_where_there_are_blocks() -> None:
    """With a sentence, before anything is looked up."""
    _, snapshots, _, _ = parts("memory://", {"rules": RULES})
    snapshots.publish_blocks(BlockList([{"id": "1", "user": "u"}]))
    with pytest.raises(InvalidRequest, match="Request"):
        snapshots.plan({"user": "u"})  # type: ignore[arg-type] # that is the point


def test_what_stands_beside_an_identity_starts_and_ends_with_it() -> None:
    """The watch over rules and blocks is one such thing."""
    heard: list[str] = []

    async def say(word: str) -> None:
        heard.append(word)

    async def scenario() -> None:
        identity = Identity(lambda: 0)
        identity.start_with(Companion(lambda: say("started"), lambda: say("closed")))
        await identity.start()
        await identity.close()

    asyncio.run(scenario())
    assert heard == ["started", "closed"]


def test_a_decision_of_the_store_has_its_replicas() -> None:
    """One that has not is of another class."""
    assert Decision(allowed=True, remaining=1, reset_after=0, retry_after=0, delay=0, stamp=0, at=0).is_replicated


def test_lists_of_a_rule_have_an_end() -> None:
    """One entry too many is refused before any is read."""
    rule = {"name": "r", "per": "user", "limits": "1/day", "match": {"endpoints": ["/x"] * (MAX_ENTRIES + 1)}}
    with pytest.raises(InvalidRules, match="at most 100,000 entries, not 100,001"):
        parse_rule_set({"rules": [rule]})
