"""The comparison in the browser decides as the product does; the operations page has the alerts that are shipped."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from headgate.core.algorithms import concurrency
from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import Algorithm, Meter

if TYPE_CHECKING:
    from pathlib import Path

_SECOND: Final = 1_000_000
_SCRIPT: Final = """
const { ALGORITHMS } = require(process.argv[1]);
const { algorithm, meter, times } = JSON.parse(require("fs").readFileSync(0));
const take = ALGORITHMS[algorithm](meter);
console.log(JSON.stringify(times.map(take)));
"""


def _meter(algorithm: Algorithm, amount: int, seconds: int) -> Meter:
    text = f"{amount}/{seconds}s" if algorithm is not Algorithm.CONCURRENCY else f"{amount} concurrent ttl {seconds}s"
    limit = parse_limit(text)
    assert isinstance(limit, Rate | Slots)
    has_delay = algorithm is Algorithm.LEAKY_BUCKET
    return Meter(limit, algorithm, max_delay=seconds * _SECOND) if has_delay else Meter(limit, algorithm)


def _answers(meter: Meter, algorithm: Algorithm, times: list[int]) -> list[dict[str, Any]]:
    state: Any = None
    answers = []
    for number, now in enumerate(times):
        if algorithm is Algorithm.CONCURRENCY:
            outcome = concurrency.decide(state, meter, now, 1, str(number), meter.period)
        else:
            outcome = meter.decide(state, meter, now, 1)
        after, allowed, _, _, retry_after, delay, _, _ = outcome
        state = after if meter.commit is None else meter.commit(state, meter, after)
        answers.append({"allowed": allowed, "delay": delay, "retryAfter": retry_after})
    return answers


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run the page's script with")
@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_page_decides_as_the_product_does(algorithm: Algorithm, root: Path) -> None:
    """Random histories get the same answers, delays and waits from the script of the page and from the core."""
    chance = random.Random(f"compare {algorithm}")
    for _ in range(3):
        amount, seconds = chance.randint(1, 30), chance.randint(1, 30)
        gaps = [chance.choice([0, 1, chance.randint(0, 2 * _SECOND), seconds * _SECOND]) for _ in range(400)]
        times = [1_700_000_000 * _SECOND + sum(gaps[: each + 1]) for each in range(len(gaps))]
        period = seconds * _SECOND
        meter = {"amount": amount, "period": period, "burst": amount, "maxDelay": period, "hold": period}
        done = subprocess.run(  # noqa: S603 (our own script)
            ["node", "-e", _SCRIPT, str(root / "docs/_static/algorithms.js")],  # noqa: S607 (whichever there is)
            input=json.dumps({"algorithm": algorithm, "meter": meter, "times": times}),
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == _answers(_meter(algorithm, amount, seconds), algorithm, times)


def test_the_operations_page_has_every_alert(root: Path) -> None:
    """Each shipped alert is in the table, with its severity, its time and its runbook word for word."""
    page = (root / "docs/operations.md").read_text(encoding="utf-8")
    alerts = yaml.safe_load((root / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    for rule in alerts["groups"][0]["rules"]:
        runbook = rule["annotations"]["runbook"].strip().replace("|", "\\|")
        row = f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {runbook} |"
        assert row in page, rule["alert"]
