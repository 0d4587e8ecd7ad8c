"""The simulator of deployments against real ones at small scale: real processes, real Valkey servers, real delays."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.support.fault_proxy import ProxyProcess

from headgate.simulate.topology.counter_run import run_counter
from headgate.simulate.topology.deployment import REGIONAL, Deployment, Mode
from headgate.simulate.topology.population import SimulatedCounter
from headgate.testing import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.conftest import Place
    from tests.chaos.figures import Figures

RATE: Final = 900.0
WINDOW: Final = 4
WINDOWS: Final = 2
FACTOR: Final = 0.7
"""The limit, of the demand."""
BETWEEN: Final = 0.04
GOSSIP: Final = 0.5
PROCESSES: Final = 6
ADMITTED: Final = 0.04
"""Predicted and measured admissions may differ by this share; Poisson's chance alone is a hundredth here."""
OPERATIONS: Final = 0.2
"""So may operations for each request, and by 0.02 operations in any case."""
OF_SHARDS: Final = 0.3
"""When a part runs out, each request on its way looks at all parts; simulated ones that come together do so once."""
SPREADS: Final[dict[Mode, Any]] = {
    Mode.EXACT: "exact",
    Mode.DENY_CACHE: "exact",
    Mode.LEASED: "leased",
    Mode.SHARDS: {"shards": 8},
    Mode.CENTRAL: {"regions": "central", "home": "r1"},
    Mode.SPLIT: {"regions": "split", "shares": {"r1": 1, "r2": 1, "r3": 1}},
    Mode.GOSSIP: {"regions": "gossip"},
    Mode.BORROW: {"regions": "borrow", "home": "r1"},
}


def _measured(mode: Mode, deployment: Deployment, ring: Place, limit: int) -> tuple[float, float]:
    """Operations for each request, and admitted, of a real deployment."""
    rule = {"name": "api", "per": "global", "limits": f"{limit}/{WINDOW}s", "algorithm": "fixed_window"}
    task: dict[str, Any] = {
        "rules": [{**rule, "spread": SPREADS[mode]}],
        "window": WINDOW,
        "windows": 1 + WINDOWS,
        "deny_cache_mb": 0 if mode is Mode.EXACT else 16,
        "gossip_seconds": GOSSIP,
        "regions": {},
    }
    with ExitStack() as stack:
        far = {}
        if mode in REGIONAL:
            for name, server in zip(deployment.names, ring.servers, strict=True):
                assert server.port is not None
                proxy = stack.enter_context(ProxyProcess(server.port))
                proxy.play(Fault.SLOW, seconds=BETWEEN)
                far[name] = proxy.url
        # Windows are those of the clock; processes need a while to start.
        task["begins"] = (time.time() + 4) // WINDOW * WINDOW + WINDOW
        processes = []
        for place, (region, many) in enumerate(deployment.processes_in.items()):
            for number in range(many):
                here = f"{ring.servers[place].url}?deadline_ms=2000" if mode in REGIONAL else _nearby(mode, ring)
                mine = {
                    **task,
                    "url": here,
                    "region": region,
                    "regions": {name: url for name, url in far.items() if name != region},
                    "rate": RATE * deployment.weights[region] / many,
                    "seed": 10 * place + number,
                }
                command = [sys.executable, "-m", "tests.chaos.topology_process", json.dumps(mine)]
                processes.append(
                    stack.enter_context(
                        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])  # noqa: S603 (our own)
                    )
                )
        found = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert max(each["late"] for each in found) < 0.5, "the machine is too busy to send so many requests"
    counted = [str(number) for number in range(1, 1 + WINDOWS)]
    offered = sum(each["offered"].get(number, 0) for each in found for number in counted)
    admitted = sum(each["admitted"].get(number, 0) for each in found for number in counted)
    return sum(each["operations"] for each in found) / offered, admitted


def _nearby(mode: Mode, ring: Place) -> str:
    return f"{ring.url if mode is Mode.SHARDS else ring.servers[0].url}?deadline_ms=2000"


@pytest.mark.parametrize("mode", Mode)
def test_the_simulator_predicts_a_real_deployment(
    mode: Mode, ring: Place, figures: Figures, say: Callable[[str], None]
) -> None:
    """Six processes, 900 requests/s, a limit of 70 % of that: operations for each request, and what is admitted."""
    deployment = Deployment(
        rate=RATE,
        regions=(3, 2, 1) if mode in REGIONAL else (1,),
        processes=PROCESSES,
        window=WINDOW,
        windows=WINDOWS,
        between=BETWEEN,
        gossip_seconds=GOSSIP,
    )
    limit = round(FACTOR * RATE * WINDOW)
    rates = {name: RATE * weight for name, weight in deployment.weights.items()}
    result = run_counter(SimulatedCounter(1, 1.0, limit, rates), deployment, mode)
    offered = sum(result.tally.offered[number] for number in range(1, 1 + WINDOWS))
    predicted = result.operations * WINDOW * WINDOWS / offered
    admitted = sum(result.tally.admitted[number] for number in range(1, 1 + WINDOWS))
    say(f"{mode}: predicted {predicted:.3f} operations for each request, {admitted} admitted")
    operations, really = _measured(mode, deployment, ring, limit)
    case = f"simulated topology, {mode}"
    figures.note(case, "operations a request, predicted", predicted, "")
    figures.note(case, "operations a request, measured", operations, "")
    figures.note(case, "admitted, predicted", admitted, "")
    figures.note(case, "admitted, measured", really, "")
    figures.check(case, "admitted, apart", abs(really - admitted) / admitted, "", ADMITTED)
    apart = max(0.0, abs(operations - predicted) - 0.02) / predicted
    figures.check(case, "operations, apart", apart, "", OF_SHARDS if mode is Mode.SHARDS else OPERATIONS)
