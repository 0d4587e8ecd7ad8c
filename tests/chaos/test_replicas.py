"""Rules that want replicas to have their counts: the verdict says whether they have, within the deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from tests.chaos.load import Load, share

from headgate import Limiter, Request
from headgate.core.decision import Source

if TYPE_CHECKING:
    from tests.chaos.figures import Figures
    from tests.chaos.load import Sample
    from tests.support.sentinel import SentinelSetup

_RATE: Final = 300
RULES: Final = {
    "rules": [
        {"name": "dear", "per": "user", "limits": "1000000/day", "wait_replicas": 1, "match": {"methods": ["PUT"]}},
        {"name": "cheap", "per": "user", "limits": "1000000/day", "match": {"methods": ["GET"]}},
    ]
}


@pytest.mark.parametrize("frozen", [False, True], ids=["replicas there", "replicas frozen"])
def test_waiting_for_replicas(sentinel_setup: SentinelSetup, figures: Figures, *, frozen: bool) -> None:
    """A verdict is `replicated` while a replica has it; without one it says so in time, and delays no other check."""
    case = f"wait_replicas, replicas {'frozen' if frozen else 'there'}"
    replicated: list[bool] = []

    async def scenario() -> tuple[list[Sample], list[Sample]]:
        async with Limiter.open(sentinel_setup.url, RULES) as limiter:

            async def ask(number: int) -> object:
                method = "PUT" if number % 2 else "GET"
                verdict = await limiter.check(Request(user=f"u{number % 100}", method=method))
                if method == "GET":
                    assert verdict.replicated
                elif verdict.source is Source.STORE:
                    replicated.append(verdict.replicated)
                return verdict

            await limiter.check(Request(user="first", method="PUT"))
            if frozen:
                for replica in sentinel_setup.replicas():
                    replica.freeze()
            async with Load(ask, _RATE) as load:  # type: ignore[arg-type] # two kinds of questions
                await asyncio.sleep(3)
        assert load.errors == []
        return [s for s in load.samples if s.number % 2], [s for s in load.samples if not s.number % 2]

    dear, cheap = asyncio.run(scenario())
    shares = replicated.count(frozen) / len(replicated)
    figures.note(case, "longest wait with wait_replicas", 1000 * max(s.wait for s in dear), "ms")
    figures.check(
        case, "p99 of waits with wait_replicas", 1000 * share([s.wait - s.queued for s in dear], 0.99), "ms", 75
    )
    figures.note(case, "p99 of waits without", 1000 * share([s.wait - s.queued for s in cheap], 0.99), "ms")
    figures.note(case, "median of waits without", 1000 * share([s.wait - s.queued for s in cheap], 0.5), "ms")
    figures.check(case, "share of verdicts that say otherwise", shares, "", 0 if frozen else 0.05)
    by_store = sum(s.source is Source.STORE for s in (*dear, *cheap))
    assert by_store >= 0.9 * (len(dear) + len(cheap))
