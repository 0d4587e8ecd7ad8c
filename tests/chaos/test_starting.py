"""How soon a whole service answers its first check, whichever servers are unavailable."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from tests.support.service import Service

if TYPE_CHECKING:
    from tests.chaos.figures import Figures
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

STARTS: Final = 5
RULE: Final = {"name": "five", "per": ["user"], "limits": "5/day"}
TOKEN: Final = "a-token-of-the-test"  # noqa: S105 (used only here)
AWAY: Final = ("nothing away", "both servers killed", "both servers frozen")
SECONDS: Final = 2.0
"""From the command to the first answer, at most, without what the machine ran other programs for meanwhile."""


@pytest.mark.parametrize("away", AWAY)
def test_the_first_answer(postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures, away: str) -> None:
    """A service that has saved its rules answers within two seconds, with both servers there or away."""
    case = f"headgate serve, {away}"
    settings = {
        "database_url": postgres.new_database(),
        "redis_url": valkey.url,
        "data_dir": str(tmp_path),
        "admin_token": TOKEN,
    }
    first = Service(**settings)
    assert first.admin.post("/v1/rules", json=RULE).status_code == 201
    while first.check(user="u1").json()["limit"] != 5:
        time.sleep(0.05)
    first.close()
    try:
        if "killed" in away:
            postgres.kill()
            valkey.kill()
        elif "frozen" in away:
            postgres.freeze()
            valkey.freeze()
        starts = [_start(settings, "the feed" if away == "nothing away" else "a saved file") for _ in range(STARTS)]
    finally:
        postgres.revive()
        valkey.revive()
    figures.note(case, "load of the machine", os.getloadavg()[0], "")
    figures.note(case, "first answer, the fastest of 5 starts", min(start.wait for start in starts), "s")
    figures.check(case, "median of 5 starts, machine aside", median(start.work for start in starts), "s", SECONDS)


class Start(NamedTuple):
    """Seconds from the command to the first answer, and how many of them the process did not have to queue."""

    wait: float
    work: float


def _start(settings: dict[str, str], origin: str) -> Start:
    began = time.perf_counter()
    service = Service(**settings)
    answer = service.check(user="u1")
    seconds = time.perf_counter() - began
    queued = int(Path(f"/proc/{service.main}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    service.close()
    assert f"from {origin} (1 rule" in service.output
    assert answer.json()["allowed"] or origin == "the feed"
    return Start(seconds, seconds - queued)
