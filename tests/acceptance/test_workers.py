"""Several processes behind one port: they count together, and come and go together."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.killing import is_alive, kill, named
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.postgres import Postgres
    from tests.support.service import Service, Start
    from tests.support.valkey import Server

FIFTY = "rules: [{name: fifty, per: [user], limits: 50/day, algorithm: fixed_window}]"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(FIFTY)
    return file


def answering(service: Service) -> list[int]:
    """The processes that answer."""
    return service.workers


def post(service: Service, path: str, **members: object) -> tuple[int, Any]:
    """Status and body of one request on a connection of its own, which any of the processes may get."""
    url = urlsplit(service.url)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=20)
    connection.request("POST", path, json.dumps(members))
    answer = connection.getresponse()
    read = answer.status, json.loads(answer.read())
    connection.close()
    return read


def ask(service: Service, user: str) -> int:
    return post(service, "/v1/check", user=user)[0]


def test_limits_hold_over_all_processes(start: Start, rules: Path, valkey: Server) -> None:
    """Four processes on one store admit together what one would, and all of them answer."""
    store = f"{valkey.url}?deadline_ms=10000"  # busy machines are slow; without the server every call would be admitted
    service = start("--rules", str(rules), "--workers", "4", redis_url=store)
    pids = answering(service)
    assert len(pids) == 4
    before = {pid: _worked(pid) for pid in pids}
    with ThreadPoolExecutor(16) as callers:
        statuses = list(callers.map(lambda _: ask(service, "together"), range(240)))
    assert (statuses.count(200), statuses.count(429)) == (50, 190)
    assert sum(_worked(pid) > before[pid] for pid in pids) > 1


@pytest.mark.parametrize("limits", ["10/day", "[10/day, 1000/year]"])
def test_local_holds_from_the_first_request(start: Start, tmp_path: Path, limits: str) -> None:
    """Started without a server, two processes admit together what the limit allows: each knows of the other."""
    file = tmp_path / "local.yaml"
    rule = f"{{name: ten, per: [user], limits: {limits}, algorithm: fixed_window, on_store_error: local}}"
    file.write_text(f"rules: [{rule.replace('1000/year', '1000/30 days')}]")
    service = start("--rules", str(file), "--workers", "2", redis_url="redis://127.0.0.1:1")
    for user in ("first", "never-met"):
        verdicts = [post(service, "/v1/check", user=user)[1] for _ in range(40)]
        assert {verdict["source"] for verdict in verdicts} == {"degraded_local"}
        assert 5 <= sum(verdict["allowed"] for verdict in verdicts) <= 10


def test_a_reservation_is_settled_by_any_process(start: Start, rules: Path, valkey: Server) -> None:
    """What one process has reserved another one settles, once."""
    service = start("--rules", str(rules), "--workers", "3", redis_url=valkey.url)
    reservation = post(service, "/v1/reserve", user="saver", cost=40)[1]["reservation"]
    outcomes = [post(service, "/v1/settle", reservation=reservation, actual=10)[1] for _ in range(12)]
    assert outcomes[0]["settled"] is True
    assert post(service, "/v1/peek", user="saver", cost=0)[1]["remaining"] == 40


def test_a_reservation_is_settled_in_its_own_region(start: Start, rules: Path, valkey: Server) -> None:
    """Another region has counters of its own, also where its store has the same address: nothing is credited there."""
    eu, us = (start("--rules", str(rules), redis_url=valkey.url, region=region) for region in ("eu", "us"))
    reservation = post(eu, "/v1/reserve", user="saver", cost=40)[1]["reservation"]
    for path in ("/v1/settle", "/v1/release"):
        elsewhere = us.http.post(path, json={"reservation": reservation})
        assert elsewhere.status_code == 404
        assert "HEADGATE_REGION" in elsewhere.text
    assert post(eu, "/v1/settle", reservation=reservation, actual=10)[1]["settled"] is True
    assert post(eu, "/v1/peek", user="saver", cost=0)[1]["remaining"] == 40


def test_a_process_that_dies_is_started_again(start: Start, rules: Path, tmp_path: Path) -> None:
    """The others go on, the log says what happened, and the embedded server stays."""
    service = start("--rules", str(rules), "--workers", "2", redis_url="embedded://", data_dir=str(tmp_path / "data"))
    ask(service, "u")
    first, second = answering(service)
    os.kill(first, signal.SIGKILL)
    killed = rf"worker \d \(process {first}\) was killed by signal 9 after \S+ s and is restarted in 0 s \(restart 1\)"
    service.wait_for_error(killed)
    while len(now := set(answering(service)) - {first}) < 2:
        pass
    assert second in now
    assert post(service, "/v1/peek", user="u")[1]["remaining"] == 48
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    assert not any(map(_is_alive, now))


def test_processes_do_not_outlive_the_one_that_keeps_them(start: Start, rules: Path, valkey: Server) -> None:
    """If the first process is killed, the others end too."""
    service = start("--rules", str(rules), "--workers", "2", redis_url=valkey.url)
    workers = answering(service)
    service.process.kill()
    service.process.wait()
    while any(map(_is_alive, workers)):
        pass


def test_workers_on_a_database_follow_one_that_leads(
    start: Start, rules: Path, valkey: Server, postgres: Postgres, tmp_path: Path
) -> None:
    """With a database one process runs the admin API, and a change made there is active in all."""
    places = {"database_url": postgres.new_database(), "redis_url": valkey.url, "data_dir": str(tmp_path / "data")}
    service = start("--rules", str(rules), "--workers", "2", **places)
    assert service.http.get("/readyz").status_code == 200
    assert post(service, "/v1/check", user="u")[1]["policy"] == "fifty"
    made = service.admin.post("/v1/blocks", json={"user": "mallory", "reason": "abuse"})
    assert made.status_code == 201, made.text
    for _ in range(8):  # whichever process is asked
        while ask(service, "mallory") != 429:
            pass
    service.signal(signal.SIGTERM)
    assert service.wait() == 0


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _worked(pid: int) -> int:
    """What a process has worked so far, in ticks; ten checks are less than one, many are not."""
    spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(spent[11]) + int(spent[12])


def _administers(service: Service) -> bool:
    try:
        return service.admin.get("/livez").status_code == 200
    except httpx.TransportError:
        return False


def test_embedded_servers_outlive_the_main_process(start: Start, tmp_path: Path) -> None:
    """It is killed: clients wait and are not refused, and Valkey and PostgreSQL have run all the time."""
    service = start(data_dir=str(tmp_path / "d"), admin_token="a-token-of-the-test")  # noqa: S106 (used only here)
    before = named(service)
    kill(before["main"])
    wait_until(lambda: not is_alive(before["main"]))
    assert ask(service, "u") == 200
    service.wait_for_error(r"answers again")
    wait_until(lambda: _administers(service))
    after = named(service)
    assert after["main"] != before["main"]
    assert {name: after[name] for name in ("keeper", "valkey", "postgres")} == {
        name: before[name] for name in ("keeper", "valkey", "postgres")
    }
