"""How large snapshots of many rules are, and how soon one is active: ``python -m bench.snapshots``.

The rules differ as those of a large company would: in name, path, method, tier, limits and algorithm.
"""

from __future__ import annotations

import asyncio
import random
import time
from string import ascii_lowercase
from typing import Any

from bench.notes import Figure, keep, resident_megabytes
from bench.server import programs, running
from rich.progress import track

from headgate.adapters.clock import wall_clock
from headgate.adapters.redis import feed_at
from headgate.adapters.zones import zone
from headgate.controlplane import documents
from headgate.controlplane.document_applier import DocumentApplier, DocumentOrigin
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule_data import brief_rule_set
from headgate.dataplane.snapshots import Snapshots
from headgate.ports import RULES, Announcement, Position

_SIZES = (1_000, 10_000, 100_000)
_ROUNDS = 3
_WORDS = 500


def rule_set(many: int) -> dict[str, Any]:
    """So many rules, no two alike; the same in each run."""
    draw = random.Random(many)
    words = ["".join(draw.choices(ascii_lowercase, k=draw.randrange(3, 10))) for _ in range(_WORDS)]

    def rule(number: int) -> dict[str, Any]:
        one, two, three = draw.choices(words, k=3)
        path = (
            f"/{one}/{{id}}/{two}-{number:x}"
            if draw.random() < 0.5
            else f"/v{draw.randrange(9)}/{one}/{three}/{number:x}"
        )
        match: dict[str, Any] = {"endpoints": [path]}
        if draw.random() < 0.5:
            match["methods"] = draw.sample(["GET", "POST", "PUT", "DELETE", "PATCH"], draw.randrange(1, 3))
        if draw.random() < 0.3:
            match["tiers"] = draw.sample(["free", "pro", "enterprise"], 1)
        limits = [f"{draw.randrange(1, 5_000)}/{draw.choice(['second', 'minute', '30s', '10 minutes'])}"]
        if draw.random() < 0.3:
            limits.append(f"{draw.randrange(5_000, 900_000)}/day")
        return {
            "name": f"{one}-{two}-{three}-{number:x}",
            "match": match,
            "per": draw.choice([["user"], ["ip"], ["tenant"], ["user", "endpoint"], ["api_key"]]),
            "limits": limits,
            "priority": draw.randrange(1, 1_000),
            "algorithm": draw.choice(["fixed_window", "sliding_window_counter", "token_bucket"]),
        }

    tiers = {name: {"limits": {}} for name in ("free", "pro", "enterprise")}
    return {"tiers": tiers, "rules": [rule(number) for number in range(many)]}


async def measure(url: str, many: int) -> list[Figure]:
    """One size: made, sent, activated."""
    began = time.perf_counter()
    document = documents.make(RULES, 1, brief_rule_set(parse_rule_set(rule_set(many), zone)))
    packing = time.perf_counter() - began
    feed = feed_at(url)
    await feed.put(document)
    await feed.announce(Announcement(0, Position("bench", 1, ""), [RULES]))
    fetching, loading, memory = [], [], 0.0
    for _ in range(_ROUNDS):
        before = resident_megabytes()
        snapshots = Snapshots(zone, wall_clock)

        def take(data: object, number: int, into: Snapshots = snapshots) -> None:
            into.publish(parse_rule_set(data, zone), number)

        began = time.perf_counter()
        found = await feed.document(RULES)
        fetching.append(time.perf_counter() - began)
        assert found is not None
        began = time.perf_counter()
        assert await DocumentApplier({RULES: take}, None).take(RULES, found, DocumentOrigin.FEED) is None
        loading.append(time.perf_counter() - began)
        memory = max(memory, resident_megabytes() - before)
    await feed.close()
    return [
        Figure(f"{many:,} rules, compressed", len(document.body) / 1e3, "kB"),
        Figure(f"{many:,} rules, checked and packed in", packing, "s"),
        Figure(f"{many:,} rules, fetched in", min(fetching), "s"),
        Figure(f"{many:,} rules, read, parsed and compiled in", min(loading), "s"),
        Figure(f"{many:,} rules, memory", memory, "MB"),
    ]


def main() -> None:
    """Measure all sizes."""
    figures = []
    with running(programs()[0]) as server:
        for many in track(_SIZES, "snapshots"):
            figures += asyncio.run(measure(server.url, many))
    keep("snapshots", figures)


if __name__ == "__main__":
    main()
