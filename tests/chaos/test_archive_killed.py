"""Archive runs that are killed at random, while events keep coming late."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.s3 import KEYS, S3Server
from tests.support.stored_events import all_events, events, store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.chaos.figures import Figures

KILLS = 10
EVENTS = 8_000
MONTHS = ("2026-01", "2026-02", "2026-03")


def _command(environment: Mapping[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 (our own words)
        [sys.executable, "-m", "headgate.cli.main", "archive", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _outcome(environment: Mapping[str, str], *words: str) -> str:
    with _command(environment, *words) as command:
        out, complaints = command.communicate(timeout=600)
    assert command.returncode == 0, complaints
    return out


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_killed_runs_lose_and_double_nothing(
    kind: str, request: pytest.FixtureRequest, database_url: str, tmp_path: Path, figures: Figures
) -> None:
    """However often runs are killed, in the end every event is in the archive once, and comes back as it was."""
    environment = dict(os.environ) | {"HEADGATE_DATABASE_URL": database_url, "HEADGATE_ARCHIVE_DAYS": "1"}
    environment["HEADGATE_ARCHIVE_URL"] = str(tmp_path / "archive")
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3")
        environment |= KEYS
        environment |= {"HEADGATE_ARCHIVE_URL": server.new_bucket(), "HEADGATE_S3_ENDPOINT": server.endpoint}
    chance = random.Random(7)
    stored: set[tuple[object, str]] = set()
    killed = 0
    for seed in range(100):
        late = list(events(chance.choice(MONTHS), EVENTS, seed=seed))
        asyncio.run(store(database_url, late))
        stored |= {(event[0], event[2]) for event in late}
        with _command(environment, "run") as command:
            try:
                command.communicate(timeout=chance.uniform(0.8, 4))
            except subprocess.TimeoutExpired:
                command.kill()
                killed += 1
        if killed == KILLS:
            break
    _outcome(environment, "run")
    assert asyncio.run(all_events(database_url)) == []
    parts = json.loads(_outcome(environment, "list", "--json"))["parts"]
    assert sum(part["events"] for part in parts) == len(stored)
    for month in MONTHS:
        _outcome(environment, "restore", month)
    back = asyncio.run(all_events(database_url))
    assert {(event[0], event[2]) for event in back} == stored
    assert len(back) == len(stored)
    case = f"archive runs killed, {kind}"
    figures.note(case, "kills", killed, "")
    figures.note(case, "parts", len(parts), "")
    figures.check(case, "events lost or there twice", abs(len(back) - len(stored)), "", 0)
