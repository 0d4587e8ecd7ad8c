"""`kill -9` of every process of `headgate serve` in turn, under load: it goes on, leaks nothing and forgets nothing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support.killing import Clients, descendants, files_of, is_alive, kill, left_in_tmp, named
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service, Start

TOKEN = "a-token-of-the-test"  # noqa: S105 (used only here)
RULE = {"name": "many", "per": ["user"], "limits": "1000000/day", "sample": 1}
TIGHT = {"name": "tight", "per": ["user"], "limits": "3/day", "match": {"endpoints": ["/tight"]}}
MAX_GAP = 15.0
"""Seconds; how long it takes depends on the machine, and is printed."""


def _whole(service: Service, workers: int) -> bool:
    return {"main", "valkey", "postgres", "checkpointer of postgres"} <= named(service).keys() and len(
        service.workers
    ) == (workers if workers > 1 else 0)


def _administers(service: Service) -> bool:
    try:
        return service.admin.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _looked(service: Service) -> dict[str, Any]:
    """What a check would answer for the user whose limit is used up."""
    answer: dict[str, Any] = service.http.post("/v1/peek", json={"user": "tight", "path": "/tight"}).json()
    return answer


def _events(service: Service) -> int:
    return len(service.admin.get("/v1/events", params={"limit": 1000, "user": "tight"}).json()["items"])


@pytest.mark.parametrize("workers", [1, 2])
def test_every_process_is_killed_in_turn(start: Start, tmp_path: Path, workers: int) -> None:
    """Two rounds: the service answers again after each death; then the supervisor dies, and all is as it was."""
    settings = {"data_dir": str(tmp_path / "d"), "admin_token": TOKEN}
    before_in_tmp = left_in_tmp()
    service = start("--workers", str(workers), **settings)
    assert service.admin.post("/v1/rules", json=RULE).status_code == 201
    assert service.admin.post("/v1/rules", json=TIGHT).status_code == 201
    assert service.admin.post("/v1/users", json={"id": "owner"}).status_code == 201
    key = service.admin.post("/v1/keys", json={"user": "owner"}).json()["secret"]
    wait_until(lambda: service.check(user="tight", path="/tight").json().get("policy") == "tight")
    while service.check(user="tight", path="/tight").status_code == 200:
        pass
    wait_until(lambda: _events(service) > 0)
    files = files_of(service.process.pid)
    with Clients(service.url) as clients:
        for turn in (1, 2):
            for name in sorted(named(service)):
                wait_until(lambda: _whole(service, workers))
                clients.take_gap()
                asked = clients.statuses.total()
                victim = named(service)[name]
                kill(victim)
                wait_until(lambda: not is_alive(victim) and _whole(service, workers))  # noqa: B023 (called here)
                if name in service.pids:
                    service.wait_for_error(rf"\(process {service.pids[name]}\) answers again")
                wait_until(lambda before=asked: clients.statuses.total() > before + 100)  # type: ignore[misc]
                wait_until(lambda: _administers(service))
                gap = clients.take_gap()
                print(f"workers {workers}, turn {turn}: {name} killed, no answer for at most {gap:.2f} s")  # noqa: T201 (a figure)
                assert gap < MAX_GAP
        wait_until(lambda: _whole(service, workers))
    print(f"workers {workers}: {dict(clients.statuses)}")  # noqa: T201 (a figure)
    assert clients.statuses[200] > 1_000
    assert files_of(service.process.pid) <= files  # fewer: the ports are released when the main process dies again
    # What was counted, stored and published before is still there, and counters were not forgotten.
    wait_until(lambda: _looked(service)["source"] == "store")
    assert not _looked(service)["allowed"]
    assert service.http.post("/v1/peek", json={"api_key": key}).json()["allowed"]
    stored = _events(service)
    processes = [pid for pid, _ in descendants(service.process.pid)]
    service.signal(signal.SIGKILL)
    service.wait()
    wait_until(lambda: not any(map(is_alive, processes)))
    again = start("--workers", str(workers), **settings)
    assert len(left_in_tmp() - before_in_tmp) == (0 if workers == 1 else 1)
    wait_until(lambda: again.http.get("/readyz").status_code == 200)
    assert {rule["name"] for rule in again.admin.get("/v1/rules").json()["items"]} == {"many", "tight"}
    assert again.check(user="tight", path="/tight").status_code == 429
    assert again.http.post("/v1/peek", json={"api_key": key}).json()["allowed"]
    assert _events(again) >= stored
    again.signal(signal.SIGTERM)
    assert again.wait() == 0
    assert left_in_tmp() <= before_in_tmp
