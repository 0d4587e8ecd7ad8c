"""The flood part: how many of a used-up caller's requests are admitted by a service on a busy machine."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.rows import Better, Outcome, Row
from tests.support.flood import Flood, Weather, flooded
from tests.support.service import Service
from tests.support.valkey import Server, free_port

if TYPE_CHECKING:
    from bench.measure import Watch

PART = "flood"
KINDS = ("http", "rls")
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done."""

    connections: int = 2_000
    seconds: float = 10.0


QUICK = Scale(connections=50, seconds=0.5)


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Let the flood come by HTTP and by gRPC, beside two CPU burners per core; `quick` only shows that it works."""
    scale = QUICK if quick else Scale()
    outcome = Outcome(PART)
    watch.begin(f"a flood on {scale.connections:,} connections", len(KINDS))
    admitted = answered = 0
    for kind in KINDS:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
            valkey = Server(Path(folder) / "valkey", free_port())
            flood = Flood(kind, scale.connections, scale.seconds)
            seen = flooded(Service, valkey, Path(folder), WORKERS, flood, Weather.BURNERS)
            valkey.kill()
        admitted += seen.admitted
        answered += sum(seen.flood.values())
        outcome.figures[kind] = [
            {
                "answers": dict(seen.flood),
                "polite": dict(seen.polite),
                "polite_p99_ms": seen.polite_p99 * 1e3,
                "worker_mib": seen.worker_bytes / 2**20,
            }
        ]
        watch.step()
    against = f"requests of a caller over its limit, {WORKERS} workers beside two CPU burners per core"
    outcome.rows.append(Row("flood_admitted", admitted, answered, "admitted", against, Better.LOWER))
    return outcome
