"""Blocks and rules that are published while Redis is unavailable hold in every process, and the answer says so."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.test_workers import answering, post
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.service import Run, Service, Start
    from tests.support.valkey import Server

PATIENCE = 30.0
TOKEN = "a-token-of-the-test"  # noqa: S105 (used only here)
RULE = {"name": "five", "per": ["user"], "limits": "5/day", "on_store_error": "deny"}


def _processes(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.admin.get("/v1/processes").json()["items"]
    return found


def _follow(service: Service, source: str, number: int) -> bool:
    found = _processes(service)
    return len(found) == number and all(process["following"] == source for process in found)


@pytest.fixture
def servers(postgres: Postgres, valkey: Server) -> Iterator[tuple[Postgres, Server]]:
    """Both servers, running again when the test ends."""
    valkey.revive()
    valkey.ask("FLUSHALL")
    yield postgres, valkey
    postgres.revive()
    valkey.revive()


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_the_emergency_lever_works_while_redis_is_unavailable(
    start: Start, servers: tuple[Postgres, Server], tmp_path: Path, how: str
) -> None:
    """A block, a rule and a user's limits reach all workers of all services, and stay when Redis recovers."""
    postgres, valkey = servers
    url = postgres.new_database()
    settings = {"database_url": url, "redis_url": valkey.url, "admin_token": TOKEN}
    one = start("--workers", "2", data_dir=str(tmp_path / "one"), **settings)
    other = start(data_dir=str(tmp_path / "other"), **settings)
    wait_until(lambda: _follow(one, "feed", 4))
    made = one.admin.post("/v1/rules", params={"wait": 10}, json=RULE)
    assert made.headers["headgate-applied"] == "4/4"
    valkey.freeze() if how == "frozen" else valkey.kill()

    blocked = one.admin.post("/v1/blocks", params={"wait": 10}, json={"user": "u1", "reason": "abuse"})
    assert (blocked.status_code, blocked.headers["headgate-applied"]) == (201, "4/4")
    assert blocked.json()["applied"] == {"processes": 4, "have_it": 4, "waiting_for": []}
    for service in (one, other):
        answers = [post(service, "/v1/peek", user="u1")[1] for _ in range(8)]
        assert {(answer["allowed"], answer["policy"]) for answer in answers} == {(False, "block")}
    wait_until(lambda: _follow(one, "database", 4))
    assert one.http.get("/readyz").json()["following"] == "database"
    changed = one.admin.put("/v1/rules/five", params={"wait": 10}, json={**RULE, "limits": "7/day"})
    assert changed.json()["applied"]["have_it"] == 4
    number = changed.json()["version"]
    assert all(post(service, "/v1/peek", user="u2")[1]["limit"] == 7 for service in (one, other) for _ in range(4))
    one.admin.post("/v1/users", json={"id": "u2", "overrides": {"five": "9/day"}}).raise_for_status()
    wait_until(
        lambda: all(post(each, "/v1/peek", user="u2")[1]["limit"] == 9 for each in (one, other) for _ in range(4))
    )
    other.wait_for_error("rules: redis unavailable, changes come from PostgreSQL: ")

    valkey.revive()
    wait_until(lambda: _follow(one, "feed", 4))
    other.wait_for_error("rules: redis recovered, changes come from it again")
    for service in (one, other):
        assert post(service, "/v1/peek", user="u1")[1]["policy"] == "block"
        assert post(service, "/v1/peek", user="u3")[1]["limit"] == 7
    assert one.admin.get("/v1/rules/five").json()["version"] == number
    gone = one.admin.delete(f"/v1/blocks/{blocked.json()['id']}", params={"wait": 10})
    assert (gone.status_code, gone.headers["headgate-applied"]) == (204, "4/4")
    assert all(post(each, "/v1/peek", user="u1")[1]["policy"] == "five" for each in (one, other) for _ in range(4))


def test_a_process_that_is_dead_or_stopped_does_not_hold_the_answer_up(
    start: Start, servers: tuple[Postgres, Server], tmp_path: Path
) -> None:
    """The answer names it for as long as it may be alive, and then counts without it."""
    postgres, valkey = servers
    settings = {"database_url": postgres.new_database(), "redis_url": valkey.url, "admin_token": TOKEN}
    one = start("--workers", "2", data_dir=str(tmp_path / "one"), **settings)
    wait_until(lambda: _follow(one, "feed", 3))
    stopped = answering(one)[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        answer = one.admin.post("/v1/blocks", params={"wait": 0.2}, json={"user": "u1"})
        assert answer.status_code == 201
        applied = answer.json()["applied"]
        assert str(stopped) in [name.rpartition(":")[2] for name in applied["waiting_for"]]
        assert applied["processes"] == 3 == applied["have_it"] + len(applied["waiting_for"])
        wait_until(lambda: len(_processes(one)) == 2)
        answer = one.admin.post("/v1/blocks", params={"wait": 10}, json={"user": "u2"})
        assert answer.json()["applied"] == {"processes": 2, "have_it": 2, "waiting_for": []}
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: len(_processes(one)) == 3)
    one.signal(signal.SIGTERM)
    assert one.wait() == 0
    other = start(data_dir=str(tmp_path / "other"), **settings)
    wait_until(lambda: len(_processes(other)) == 1)


def test_a_command_says_who_has_a_block(
    start: Start, headgate: Run, servers: tuple[Postgres, Server], tmp_path: Path
) -> None:
    """One line, whether the command asks a service or works on the database itself."""
    postgres, valkey = servers
    database, redis = postgres.new_database(), valkey.url
    service = start(database_url=database, redis_url=redis, data_dir=str(tmp_path), admin_token=TOKEN)
    wait_until(lambda: len(_processes(service)) == 1)
    asked = headgate("blocks", "add", "--user", "u1", admin_url=service.admin_url, admin_token=TOKEN)
    assert re.search(r"^applied by [01] of 1 process", asked.stdout, re.MULTILINE)  # 1, unless the machine is busy
    alone = headgate("blocks", "add", "--user", "u2", database_url=database, redis_url=redis, data_dir=str(tmp_path))
    assert re.search(r"^applied by [01] of 1 process", alone.stdout, re.MULTILINE)
    listed = headgate("processes", admin_url=service.admin_url, admin_token=TOKEN).stdout
    assert f":{service.main}" in listed
    assert "feed" in listed
