"""The control plane in whole processes: changes reach all, and a service decides while servers are unavailable."""

from __future__ import annotations

import errno
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.support.valkey import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.service import Run, Service, Start
    from tests.support.valkey import Server

PATIENCE = 10.0
TOKEN = "a-token-of-the-test"  # noqa: S105 (used only here)
RULE = {"name": "five", "per": ["user"], "limits": "5/day"}


def _limit(service: Service) -> int | None:
    limit: int | None = service.http.post("/v1/peek", json={"user": "u1"}).json()["limit"]
    return limit


@pytest.fixture
def revived(postgres: Postgres, valkey: Server) -> Iterator[tuple[Postgres, Server]]:
    """Both servers, running again when the test ends."""
    valkey.revive()
    valkey.ask("FLUSHALL")
    yield postgres, valkey
    postgres.revive()
    valkey.revive()


def test_a_whole_product_by_one_command(start: Start, tmp_path: Path) -> None:
    """Without any setting there are a database, counters, an admin API and a token, all kept in the data directory."""
    service = start(data_dir=str(tmp_path))
    assert service.admin.post("/v1/rules", json=RULE).status_code == 201
    wait_until(lambda: _limit(service) == 5)
    assert service.check(user="u1").json()["remaining"] == 4
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    again = start(data_dir=str(tmp_path))
    assert again.admin_token == service.admin_token
    assert again.admin_token.startswith("hgt_")
    assert again.admin_token not in again.output + again.errors  # a pipe may end in a log that many can read
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    assert again.check(user="u1").json()["remaining"] == 3


def test_changes_reach_other_services(start: Start, revived: tuple[Postgres, Server], tmp_path: Path) -> None:
    """What is changed through one service holds in another: rules, blocks, users and keys, without a restart."""
    postgres, valkey = revived
    url = postgres.new_database()
    one, other = (
        start(database_url=url, redis_url=valkey.url, data_dir=str(tmp_path / name), admin_token=TOKEN)
        for name in ("one", "other")
    )
    assert one.admin.post("/v1/rules", json=RULE).status_code == 201
    wait_until(lambda: _limit(other) == 5)
    assert one.admin.post("/v1/users", json={"id": "u1", "overrides": {"five": "9/day"}}).status_code == 201
    wait_until(lambda: _limit(other) == 9)
    block = one.admin.post("/v1/blocks", json={"user": "u1", "reason": "abuse"}).json()
    wait_until(lambda: not other.http.post("/v1/peek", json={"user": "u1"}).json()["allowed"])
    assert other.admin.delete(f"/v1/blocks/{block['id']}").status_code == 204
    wait_until(lambda: one.http.post("/v1/peek", json={"user": "u1"}).json()["allowed"])
    made = one.admin.post("/v1/keys", json={"user": "u1"}).json()

    def known(service: Service) -> bool:
        peeked = service.http.post("/v1/peek", json={"api_key": made["secret"]}).json()
        return bool(peeked["limit"] == 9)

    assert known(other)
    assert one.admin.post(f"/v1/keys/{made['key']['id']}/revoke").status_code == 200
    wait_until(lambda: not known(other))


@pytest.mark.parametrize("away", ["nothing", "postgres", "valkey", "both"])
@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_a_service_starts_whatever_is_unavailable(
    start: Start, revived: tuple[Postgres, Server], tmp_path: Path, away: str, how: str
) -> None:
    """It decides by the newest rules that can be had, at last by those it has saved, and says so."""
    postgres, valkey = revived
    settings = {
        "database_url": postgres.new_database(),
        "redis_url": valkey.url,
        "data_dir": str(tmp_path),
        "admin_token": TOKEN,
    }
    first = start(**settings)
    assert first.admin.post("/v1/rules", json=RULE).status_code == 201
    wait_until(lambda: _limit(first) == 5)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    if away in {"postgres", "both"}:
        postgres.freeze() if how == "frozen" else postgres.kill()
    if away in {"valkey", "both"}:
        valkey.freeze() if how == "frozen" else valkey.kill()
    second = start(**settings)
    origin = {"nothing": "the feed", "postgres": "the feed", "valkey": "the database", "both": "a saved file"}[away]
    assert f"from {origin} (1 rule" in second.output
    verdict = second.check(user="u1").json()
    assert verdict["allowed"]
    assert verdict["source"] == ("store" if away in {"nothing", "postgres"} else "degraded_allow")


def test_a_service_that_is_slow_to_start_keeps_its_ports(
    start: Start, revived: tuple[Postgres, Server], tmp_path: Path
) -> None:
    """While it waits for a frozen server, no other process can take the port on which it will answer."""
    postgres, valkey = revived
    url, port = postgres.new_database(), free_port()
    postgres.freeze()
    settings = {"port": str(port), "database_url": url, "redis_url": valkey.url, "data_dir": str(tmp_path)}
    with ThreadPoolExecutor() as threads:
        starting = threads.submit(start, **settings)
        wait_until(lambda: _is_kept(port), interval=0.25)  # seldom: to look takes the port for a moment
        assert not starting.done()
        postgres.revive()
        assert starting.result().http.get("/livez").status_code == 200


def _is_kept(port: int) -> bool:
    """Whether a process holds the port without listening there."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return other.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
    return False


def test_a_service_without_anything_starts_and_waits_for_rules(
    start: Start, revived: tuple[Postgres, Server], tmp_path: Path
) -> None:
    """With both servers down and nothing saved it starts without rules and is not ready until they recover."""
    postgres, valkey = revived
    url = postgres.new_database()
    postgres.kill()
    valkey.kill()
    service = start(database_url=url, redis_url=valkey.url, data_dir=str(tmp_path), admin_token=TOKEN)
    assert "no rules yet" in service.output
    assert service.http.get("/readyz").status_code == 503
    assert service.http.get("/livez").status_code == 200
    postgres.restart()
    valkey.restart()
    wait_until(lambda: service.http.get("/readyz").status_code == 200)
    assert service.admin.post("/v1/rules", json=RULE).status_code == 201
    wait_until(lambda: _limit(service) == 5)


def test_commands_go_to_the_database_of_the_data_directory(start: Start, headgate: Run, tmp_path: Path) -> None:
    """While a service runs on its own servers, a command in the same place needs no address and no token."""
    service = start(data_dir=str(tmp_path))
    done = headgate("tiers", "set", "free", "--limit", "api=7/minute", data_dir=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert service.admin.get("/v1/tiers/free").json()["limits"] == {"api": ["7/minute"]}
