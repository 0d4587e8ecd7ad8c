"""Back up, destroy, restore: the walk-through of docs/how-to/recover.md, command by command, on a running service."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.service import environment
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import Postgres
    from tests.support.service import Run, Service, Start
    from tests.support.valkey import Server

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "recover.md"
PATIENCE = 60.0
TOKEN = "a-token-of-the-test"  # noqa: S105 (used only here)
RULE = {"name": "five", "per": ["user"], "limits": "5/day"}
FLEETING = {"last_used", "last_request", "requests_today", "requests_month"}


def _commands(heading: str) -> list[str]:
    """The commands below a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```console\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for line in block.splitlines()]


class Operator:
    """An operator at a shell, who types what the page says."""

    def __init__(self, postgres: Postgres, settings: dict[str, str]) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), str(postgres.programs), os.environ["PATH"]])
        self._environment = environment(**settings) | {
            "PATH": path,
            "PGHOST": str(postgres.folder),
            "PGUSER": "postgres",
        }

    def types(self, command: str) -> str:
        done = subprocess.run(  # noqa: S603 (our own documentation)
            shlex.split(command), env=self._environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout


def _configuration(service: Service) -> dict[str, Any]:
    """Everything that operators have configured, as the admin API answers it."""

    def lasting(thing: Any) -> Any:  # noqa: ANN401 (JSON)
        if isinstance(thing, dict):
            return {name: lasting(value) for name, value in thing.items() if name not in FLEETING}
        return list(map(lasting, thing)) if isinstance(thing, list) else thing

    answers = {}
    for kind in ("rules", "tiers", "users", "keys", "blocks", "tokens", "changes"):
        answer = service.admin.get(f"/v1/{kind}")
        assert answer.status_code == 200, answer.text
        answers[kind] = lasting(answer.json())
    return answers


@pytest.fixture
def operator(postgres: Postgres, valkey: Server, tmp_path: Path) -> Iterator[tuple[Operator, dict[str, str]]]:
    """An operator with a database `headgate` and a Redis."""
    valkey.revive()
    valkey.ask("FLUSHALL")
    settings = {
        "database_url": postgres.url("headgate"),
        "redis_url": valkey.url,
        "archive_url": str(tmp_path / "archive"),
        "data_dir": str(tmp_path / "data"),
        "admin_token": TOKEN,
    }
    postgres.execute("postgres", "CREATE DATABASE headgate")
    yield Operator(postgres, settings), settings
    postgres.execute("postgres", "DROP DATABASE IF EXISTS headgate WITH (FORCE)")


def test_the_walk_through(operator: tuple[Operator, dict[str, str]], valkey: Server, start: Start) -> None:
    """Back up, destroy both servers' data, restore: configuration identical, keys valid, counters of the backup."""
    person, settings = operator
    service = start(**settings)
    admin = service.admin
    assert admin.post("/v1/tiers", json={"name": "pro", "limits": {"five": "50/day"}}).status_code == 201
    assert admin.post("/v1/rules", json=RULE).status_code == 201
    assert admin.post("/v1/users", json={"id": "u1", "overrides": {"five": "9/day"}}).status_code == 201
    assert admin.post("/v1/blocks", json={"user": "u2", "reason": "abuse"}).status_code == 201
    key = admin.post("/v1/keys", json={"user": "u1"}).json()["secret"]
    token = admin.post("/v1/tokens", json={"name": "ci", "role": "operator"}).json()["secret"]

    def peek(**who: str) -> Any:  # noqa: ANN401 (JSON)
        return service.http.post("/v1/peek", json=who).json()

    wait_until(lambda: peek(user="u3")["limit"] == 5 and not peek(user="u2")["allowed"])
    for _ in range(2):
        assert service.check(user="u3").json()["allowed"]
    before = _configuration(service)

    for command in _commands("Back up"):
        said = person.types(command)
    assert said.count("\n") >= 2
    assert service.check(user="u3").json()["remaining"] == 2

    empty, *others = _commands("Restore into an empty database")
    person.types(empty)
    valkey.ask("FLUSHALL")
    for command in others:
        person.types(command)
    wait_until(lambda: peek(user="u3").get("limit") == 5 and peek(user="u3")["source"] == "store")
    wait_until(lambda: not peek(user="u2")["allowed"])
    assert _configuration(service) == before
    assert peek(api_key=key)["limit"] == 9
    answer = admin.get("/v1/rules/five", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    # Two were counted when the backup was made. The third is forgotten; what is peeked at would be the third again.
    assert service.check(user="u3").json()["remaining"] == 2

    # The service is running still. What is changed now is taken back, although its numbers are higher.
    *commands, restore = _commands("Restore into a running system")
    for command in commands:
        person.types(command)
    assert admin.put("/v1/rules/five", json=RULE | {"limits": "7/day"}).status_code == 200
    assert admin.post("/v1/blocks", json={"user": "u4"}).status_code == 201
    wait_until(lambda: peek(user="u3")["limit"] == 7 and not peek(user="u4")["allowed"])
    person.types(restore)
    wait_until(lambda: peek(user="u3")["limit"] == 5 and peek(user="u4")["allowed"])
    assert admin.put("/v1/rules/five", json=RULE | {"limits": "4/day"}).status_code == 200
    wait_until(lambda: peek(user="u3")["limit"] == 4)


def test_servers_of_our_own_are_restored(start: Start, headgate: Run, tmp_path: Path) -> None:
    """Without any setting a backup goes to the data directory, and lost servers are made anew from it."""
    settings = {"data_dir": str(tmp_path), "admin_token": TOKEN}
    service = start(**settings)
    assert service.admin.post("/v1/rules", json=RULE).status_code == 201
    wait_until(lambda: service.check(user="u1").json()["limit"] == 5)
    used = service.check(user="u1").json()["remaining"]
    made = headgate("backup", "--redis", data_dir=str(tmp_path))
    assert made.returncode == 0, made.stderr
    assert f"in {tmp_path / 'archive'}" in made.stdout
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    for lost in ("postgres", "valkey", "saved"):
        shutil.rmtree(tmp_path / lost)
    restored = headgate("restore", "latest", "--redis", data_dir=str(tmp_path))
    assert restored.returncode == 0, restored.stderr
    assert start(**settings).check(user="u1").json()["remaining"] == used - 1
