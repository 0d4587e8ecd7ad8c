"""Leases: a hot counter that four processes share, a lease hit beside the memory store, and the services."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import lease_services
from bench.lease_hits import hit_rows, single_row
from bench.measure import guard
from bench.rows import Better, Outcome, Row
from bench.server import programs, running

if TYPE_CHECKING:
    from bench.measure import Watch
    from bench.server import Server

PART = "leases"
PROCESSES = 4
_ALGORITHMS = ("fixed_window", "sliding_window_counter", "token_bucket")
_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    seconds, rounds = (0.3, 1) if quick else (2.0, 3)
    outcome = Outcome(PART)
    with running(programs()[0]) as server:
        for how in ("hit", "check"):
            _hot_key(server, how, seconds, rounds, watch, outcome)
        _never_over(server, watch, outcome, 500 if quick else 20_000)
        _shares(server, seconds, watch, outcome)
        single_row(server, watch, outcome, quick=quick)
        hit_rows(server, watch, outcome, quick=quick)
    lease_services.run(watch, outcome, quick=quick)
    return outcome


def _holders(server: Server, how: str, spread: str, seconds: float, **options: Any) -> dict[str, float]:  # noqa: ANN401 (JSON)
    """What four processes did at once: requests, admissions, seconds, and what they cost the server."""
    server.flush()
    server.ask("CONFIG", "RESETSTAT")
    task = {"url": server.url, "how": how, "spread": spread, "seconds": seconds, **options}
    command = [sys.executable, "-m", "bench.lease_holder", json.dumps(task)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(  # noqa: S603 (our own)
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
                )
            )
            for _ in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [json.loads(process.communicate()[0]) for process in processes]
    return {
        "requests": sum(each["requests"] for each in found),
        "admitted": sum(each["admitted"] for each in found),
        "pace": sum(each["requests"] / each["seconds"] for each in found),
        "calls": _script_calls(server),
    }


def _script_calls(server: Server) -> int:
    stats = server.info("commandstats")
    counted = [dict(part.split("=") for part in stats[name].split(",")) for name in stats if "eval" in name]
    return sum(int(each["calls"]) for each in counted)


def _hot_key(server: Server, how: str, seconds: float, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """One key, four processes of 16 tasks each: leased against exact."""
    found: dict[str, list[dict[str, float]]] = {"exact": [], "leased": []}
    watch.begin(f"hot key, {how}", 2 * rounds)
    for _ in range(rounds):
        for spread, each in found.items():
            each.append(_holders(server, how, spread, seconds))
            guard(spread, int(each[-1]["admitted"]), int(each[-1]["requests"]))
            watch.step()
    paces = {spread: [each["pace"] for each in many] for spread, many in found.items()}
    ratio = median(paces["leased"]) / median(paces["exact"])
    name = "leased_hot_key" if how == "hit" else "leased_hot_key_check"
    against = "the same four processes with spread: exact"
    best = {spread: max(many) for spread, many in paces.items()}
    outcome.rows.append(Row(name, best["leased"], best["exact"], "checks/s", against, median_ratio=ratio))
    if how == "hit":
        calls = {
            spread: sum(e["calls"] for e in many) / sum(e["requests"] for e in many) for spread, many in found.items()
        }
        outcome.rows.append(Row("leased_calls", calls["leased"], calls["exact"], "calls/check", against, Better.LOWER))
    outcome.figures[f"hot key, {how}"] = [{"spread": spread, **each} for spread, many in found.items() for each in many]


def _never_over(server: Server, watch: Watch, outcome: Outcome, limit: int) -> None:
    """Until the limit is used up, with every algorithm: what was admitted over it, which must be nothing."""
    rows = []
    watch.begin("over the limit", len(_ALGORITHMS))
    for algorithm in _ALGORITHMS:
        times = limit // 2
        found = _holders(server, "hit", "leased", 0, limit=f"{limit}/day", algorithm=algorithm, times=times)
        rows.append({"algorithm": algorithm, "limit": limit, "admitted": found["admitted"]})
        watch.step()
    outcome.figures["over the limit"] = rows
    over = sum(max(0, row["admitted"] - row["limit"]) for row in rows)
    outcome.rows.append(Row("leased_over", over, 1, "admitted over", "a limit that is used up", Better.LOWER))


def _shares(server: Server, seconds: float, watch: Watch, outcome: Outcome) -> None:
    """Throughput against the share of traffic on one key; the rest goes to 10,000 others."""
    rows = []
    watch.begin("share on the hot key", 2 * len(_SHARES))
    for share in _SHARES:
        for spread in ("exact", "auto"):
            found = _holders(server, "hit", spread, seconds, share=share)
            rows.append({"spread": spread, "share": share, "pace": found["pace"]})
            watch.step()
    outcome.figures["shares"] = rows
