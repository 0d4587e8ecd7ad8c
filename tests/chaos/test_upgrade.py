"""A rolling upgrade under load, from the wheel of an earlier commit to this version, and a step back."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Self

import httpx
import pytest
from tests.support import earlier
from tests.support.service import Service
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

EARLIER = os.environ.get("UPGRADE_FROM", "31872b3")
TOKEN = "a-token-of-the-test"  # noqa: S105 (used only here)
CAP = 400
RULES = [
    {"name": "capped", "per": ["user"], "limits": f"{CAP}/30 days", "algorithm": "fixed_window"},
    {"name": "bucket", "per": ["ip"], "limits": "1000000/hour", "algorithm": "token_bucket"},
]
EVERYTHING = {"denial_events_per_minute": "1000000", "events_per_minute": "1000000"}


class Balancer:
    """A load balancer that asks /readyz, and clients that call what is ready, each call on a new connection."""

    def __init__(self, ports: list[int], users: int = 3) -> None:
        self._ports = ports
        self._ready = set(ports)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._look)]
        self._threads += [threading.Thread(target=self._call, args=(f"u{number}",)) for number in range(users)]
        self.outcomes: Counter[int | str] = Counter()
        self.admitted: Counter[str] = Counter()
        self.denied = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            for port in self._ports:
                try:
                    is_ready = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200
                except httpx.TransportError:
                    is_ready = False
                (self._ready.add if is_ready else self._ready.discard)(port)

    def _call(self, user: str) -> None:
        body, number = json.dumps({"user": user, "ip": "203.0.113.9"}), 0
        while not self._ended.wait(0.005):
            number += 1
            ready = sorted(self._ready)
            outcome: int | str = "no instance is ready"
            if ready:
                connection = HTTPConnection("127.0.0.1", ready[number % len(ready)], timeout=20)
                try:
                    connection.request("POST", "/v1/check", body)
                    answer = connection.getresponse()
                    verdict = json.loads(answer.read())
                    outcome = answer.status
                    if verdict.get("source", "store") not in {"store", "deny_cache", "lease"}:
                        outcome = verdict["source"]
                except (OSError, HTTPException) as error:
                    outcome = repr(error)
                finally:
                    connection.close()
            with self._lock:
                self.outcomes[outcome] += 1
                self.admitted[user] += outcome == 200
                self.denied += outcome == 429


def _free_ports(count: int) -> list[int]:
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in with_ports]
    for each in with_ports:
        each.close()
    return ports


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not earlier.has(EARLIER):
        missing = f"this is no clone with the commit {EARLIER}"
        if os.environ.get("CI"):
            pytest.fail(f"{missing}: fetch the whole history")
        pytest.skip(missing)
    return earlier.install(EARLIER, tmp_path_factory.mktemp("earlier"))


def test_a_rolling_upgrade_under_load(old_python: Path, postgres: Postgres, valkey: Server, tmp_path: Path) -> None:
    """One instance after the other: no error, not one admission too many, and rules and events are kept."""

    class Earlier(Service):
        program = (str(old_python), "-m", "headgate.cli.main")

    ports = _free_ports(2)
    where = {"database_url": postgres.new_database(), "redis_url": f"{valkey.url}?deadline_ms=10000"}
    valkey.ask("FLUSHALL")

    def begin(number: int, version: type[Service] = Service) -> Service:
        settings = {"data_dir": str(tmp_path / str(number)), "port": str(ports[number]), "notice_seconds": "3"}
        return version(**settings, **where, **EVERYTHING, admin_token=TOKEN)

    services = [begin(0, Earlier), begin(1, Earlier)]
    try:
        for rule in RULES:
            assert services[0].admin.post("/v1/rules", json=rule).status_code == 201
        for service in services:
            wait_until(lambda each=service: each.check(user="x", cost=0).json().get("decisions", [])[1:])  # type: ignore[misc]
        with Balancer(ports) as balancer:
            _run_for(balancer, 200)
            for number in (0, 1):
                services[number].signal(signal.SIGTERM)
                assert services[number].wait() == 0, services[number].errors
                services[number].close()
                services[number] = begin(number)
                _run_for(balancer, 200)
                # Side by side: a change at either one is active at both.
                for maker in services:
                    name = f"made-{number}-{services.index(maker)}"
                    made = {"name": name, "per": ["tenant"], "limits": "7/day", "match": {"endpoints": [f"/{name}"]}}
                    answer = maker.admin.post("/v1/rules", json=made)
                    assert answer.status_code == 201, answer.text + maker.errors
                    for reader in services:
                        wait_until(lambda name=name, each=reader: _applies(each, name))  # type: ignore[misc]
            _run_for(balancer, 200)
        print(f"upgrade from {EARLIER}: {dict(balancer.outcomes)}, admitted {dict(balancer.admitted)} of {CAP} each")  # noqa: T201 (figures)
        assert set(balancer.outcomes) <= {200, 429}, "no error"
        assert all(admitted == CAP for admitted in balancer.admitted.values()), "not one too many, not one too few"
        rules = {rule["name"] for rule in services[0].admin.get("/v1/rules").json()["items"]}
        assert rules == {"capped", "bucket", "made-0-0", "made-0-1", "made-1-0", "made-1-1"}
        wait_until(lambda: _denials(services[0]) == balancer.denied)
        # A step back: the earlier version on the newer schema decides by the newest rules.
        services[1].signal(signal.SIGTERM)
        assert services[1].wait() == 0
        services[1].close()
        services[1] = begin(1, Earlier)
        wait_until(lambda: _applies(services[1], "made-1-1"))
        assert services[1].check(user="u0").status_code == 429
    finally:
        for service in services:
            service.close()


def _run_for(balancer: Balancer, calls: int) -> None:
    before = balancer.outcomes.total()
    deadline = time.monotonic() + 60
    while balancer.outcomes.total() < before + calls:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _applies(service: Service, name: str) -> bool:
    verdict = service.http.post("/v1/peek", json={"tenant": "t", "path": f"/{name}"}).json()
    return name in {each["rule"] for each in verdict.get("decisions", [])}


def _denials(service: Service) -> int:
    """Denials that are stored as events."""
    since, count = None, 0
    while True:
        query: dict[str, str | int] = {"limit": 1000, "decision": "denied"}
        if since is not None:
            query["after"] = since
        page = service.admin.get("/v1/events", params=query).json()
        count += sum(each["user"] in {"u0", "u1", "u2"} for each in page["items"])
        since = page.get("next")
        if not since:
            return count
