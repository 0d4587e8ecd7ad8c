"""What a simulation of a deployment found, as plain data: for the table, for programs and for plots."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headgate.simulate.topology.deployment import REGIONAL
from headgate.simulate.topology.population import HEAD
from headgate.simulate.topology.tally import longer, percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.simulate.topology.deployment import Deployment
    from headgate.simulate.topology.layers import ModeResult

_ONE_CORE = 1.0


def report(deployment: Deployment, results: Sequence[ModeResult]) -> dict[str, Any]:
    """The report."""
    inputs = asdict(deployment)
    inputs["regions"] = deployment.weights
    inputs["processes"] = deployment.processes_in
    first = results[0]
    return {
        "deployment": inputs,
        "simulated": {
            "users": first.users.counters,
            "rules": first.rules.counters,
            "one_by_one": HEAD,
            "seconds": deployment.window * deployment.windows,
        },
        "modes": [_row(deployment, result) for result in results],
    }


def _row(deployment: Deployment, result: ModeResult) -> dict[str, Any]:
    users, rules = result.users, result.rules
    passed = users.share.admitted / max(1.0, users.share.offered)
    # A request that its user's limit refuses waits for that alone; the others for both, at the same time.
    both = longer(users.waits, rules.waits)
    alone = sum(users.waits.values()) or 1.0
    waits = {
        micros: passed * both.get(micros, 0.0) + (1 - passed) * users.waits.get(micros, 0.0) / alone
        for micros in {*both, *users.waits}
    }
    operations = users.operations + rules.operations
    hottest_core = max(users.hottest, rules.hottest) * deployment.redis_micros / 1e6
    return {
        "mode": result.mode.value,
        "limit_of": "all regions" if result.mode in REGIONAL else "each region",
        "redis_operations_per_second": operations,
        "of_users": users.operations,
        "of_rules": rules.operations,
        "operations_per_request": operations / deployment.rate,
        "redis_cores": operations * deployment.redis_micros / 1e6,
        "hottest_key_operations_per_second": max(users.hottest, rules.hottest),
        "hottest_key_cores": hottest_core,
        "is_possible": hottest_core <= _ONE_CORE,
        "over": rules.share.over / max(1.0, rules.share.ideal),
        "worst_over": rules.share.worst_over,
        "under": rules.share.under / max(1.0, rules.share.ideal),
        "users_over": users.share.over / max(1.0, users.share.ideal),
        "users_under": users.share.under / max(1.0, users.share.ideal),
        "admitted": passed * rules.share.admitted / max(1.0, rules.share.offered),
        "without_redis": waits.get(0, 0.0) / (sum(waits.values()) or 1.0),
        "p50_ms": percentile(waits, 0.5),
        "p99_ms": percentile(waits, 0.99),
    }
