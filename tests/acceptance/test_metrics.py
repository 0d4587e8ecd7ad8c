"""`/metrics` of a whole service: exact, bounded, and the same whichever process is asked."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.core.metrics import METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.service import Service, Start
    from tests.support.valkey import Server

RULES: Final = """
rules:
  - {name: five, per: [user], limits: 5/day, algorithm: fixed_window}
  - {name: watched, per: [user], limits: 3/day, algorithm: fixed_window, action: log, layer: other}
"""
PATIENCE: Final = 60.0
DECISIONS: Final = "headgate_decisions_total"
BY_RULE: Final = "headgate_rule_decisions_total"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def scrape(url: str, **headers: str) -> dict[tuple[str, ...], float]:
    """All samples by name and labels, over a connection of its own, which any of the processes may get."""
    answer = httpx.get(f"{url}/metrics", headers=headers, timeout=PATIENCE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            place = (sample.name, *sample.labels.values())
            assert place not in found
            found[place] = sample.value
    return found


def total(samples: dict[tuple[str, ...], float], *place: str) -> float:
    """The sum of all samples whose name and labels begin like this."""
    return sum(value for each, value in samples.items() if each[: len(place)] == place)


def until(service: Service, wanted: float, *place: str) -> dict[tuple[str, ...], float]:
    """The first samples in which a sum has come up to a number; it never falls, and never goes past it."""
    last, deadline = 0.0, time.monotonic() + PATIENCE
    while True:
        samples = scrape(service.url)
        now = total(samples, *place)
        assert last <= now <= wanted, place
        if now == wanted:
            return samples
        assert time.monotonic() < deadline, (place, now, wanted)
        last = now


def ask(service: Service, user: str) -> int:
    url = urlsplit(service.url)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=PATIENCE)
    connection.request("POST", "/v1/check", json.dumps({"user": user, "path": f"/of/{user}"}))
    status = connection.getresponse().status
    connection.close()
    return status


def test_any_process_answers_for_all_and_nothing_falls_when_one_dies(start: Start, rules: Path, valkey: Server) -> None:
    """As many decisions are reported as were made, whichever process is asked, and none fewer after a death."""
    service = start("--rules", str(rules), "--workers", "2", redis_url=valkey.url)
    last = 0.0
    with ThreadPoolExecutor(8) as callers:
        asking = [callers.submit(ask, service, f"metrics-{number % 20}") for number in range(200)]
        while not all(each.done() for each in asking):
            now = total(scrape(service.url), DECISIONS)
            assert last <= now <= 200  # under load too, every scrape is whole
            last = now
    statuses = [each.result() for each in asking]
    assert (statuses.count(200), statuses.count(429)) == (100, 100)
    samples = until(service, 200, DECISIONS)
    until(service, 200, "headgate_http_requests_total", "/v1/check")
    assert total(samples, DECISIONS, "denied", "false") == 100
    assert total(samples, DECISIONS, "allowed", "false") == 60
    assert total(samples, DECISIONS, "shadow", "false") == 40
    assert total(samples, BY_RULE, "five", "denied") == 100
    assert total(samples, BY_RULE, "five", "allowed") == 100
    assert total(samples, BY_RULE, "watched", "shadow") == 40
    assert {place[1] for place in samples if place[0] == "headgate_ready"} == {"main", "1", "2"}
    assert total(samples, "headgate_decision_seconds_bucket", "+Inf") == total(
        samples, "headgate_decision_seconds_count"
    )
    first, *_ = service.workers
    os.kill(first, signal.SIGKILL)
    service.wait_for_error(r"is restarted")
    assert total(scrape(service.url), DECISIONS) == 200
    deadline = time.monotonic() + PATIENCE
    while total(scrape(service.url), "headgate_ready") < 3:
        assert time.monotonic() < deadline
    assert [ask(service, "metrics-1") for _ in range(20)] == [429] * 20
    samples = until(service, 220, DECISIONS)
    assert total(samples, DECISIONS, "denied") == 120


def test_labels_are_bounded_whatever_callers_send(start: Start, rules: Path) -> None:
    """Thousands of users, paths, methods and endpoints that do not exist make no more time series than one does."""
    service = start("--rules", str(rules), redis_url="memory://")
    service.check(user="first", path="/x")
    service.http.get("/nothing/here")
    before = until(service, 1, DECISIONS)
    odd = [
        {"user": f"u{n}", "path": f'/p{n}"}} #', "method": f"M{n}", "attributes": {"rule": f"r{n}"}} for n in range(500)
    ]
    for _ in range(3):
        assert service.http.post("/v1/check:batch", json={"checks": odd}).status_code == 200
    for number in range(100):
        service.http.request(f"ODD{number}", f"/v1/{number}")
        service.http.request("GET", f"/v1/forward-auth/{number}?x", headers={"X-API-Key": f"k{number}"})
    after = until(service, 1 + 1_500 + 100, DECISIONS)
    new = {place for place in set(after) - set(before) if not place[0].endswith("_bucket")}
    assert len(new) < 12, new
    assert {place[1] for place in after if place[0] == "headgate_http_requests_total"} <= {
        *("/v1/check", "/v1/check:batch", "/v1/forward-auth", "/metrics", "other"),
    }
    assert not [place for place in after if any(word in str(place) for word in ("u1", "p1", "M1", "k1", "r1"))]


def test_metrics_need_no_token_and_name_no_secret(
    start: Start, rules: Path, valkey: Server, postgres: Postgres, tmp_path: Path
) -> None:
    """With a service token and a database, both ports answer without a token, with the same counts and no secret."""
    secret = "a-secret-token-of-this-test"  # noqa: S105 (as it says)
    service = start(
        "--rules",
        str(rules),
        redis_url=valkey.url,
        database_url=postgres.new_database(),
        data_dir=str(tmp_path / "data"),
        service_token=secret,
        events="no",
    )
    assert service.check(user="u").status_code == 401
    allowed = httpx.post(
        f"{service.url}/v1/check",
        json={"user": "u"},
        headers={"X-Headgate-Token": secret},
        timeout=PATIENCE,
    )
    assert allowed.status_code == 200
    until(service, 1, DECISIONS, "allowed", "false")
    samples = scrape(service.admin_url)
    assert total(samples, DECISIONS) == 1
    assert total(samples, "headgate_database_up") == total(samples, "headgate_feed_up") == 1
    assert total(samples, "headgate_snapshot") >= 1
    assert total(samples, "headgate_store_breaker") == 0
    assert total(samples, "headgate_rules_confirmed_age_seconds") < PATIENCE
    assert service.admin_token not in str(samples)
    assert secret not in str(samples)
    assert {place[0] for place in samples} <= {
        *METRICS,
        *(f"headgate_decision_seconds{part}" for part in ("_bucket", "_sum", "_count")),
    }


def test_an_unavailable_store_shows(start: Start, rules: Path) -> None:
    """The breaker of a server that does not answer is open, and what is decided meanwhile counts as degraded."""
    service = start("--rules", str(rules), redis_url="redis://:secret@127.0.0.1:1")
    for _ in range(20):
        assert service.check(user="u").status_code == 200
    until(service, 20, DECISIONS, "allowed", "true")
    samples = until(service, 2, "headgate_store_breaker", "main", "127.0.0.1:1")
    assert total(samples, "headgate_degraded_limits_total", "degraded_allow") >= 20
    assert "secret" not in str(samples)


def test_what_is_recorded_and_stored_is_reported(start: Start, rules: Path, tmp_path: Path) -> None:
    """Events are counted where they are made and where they are stored, and nothing is missing in between."""
    service = start(
        *("--rules", str(rules)),
        redis_url="memory://",
        events_file=str(tmp_path / "events.jsonl"),
        data_dir=str(tmp_path / "data"),
    )
    assert [service.check(user="u").status_code for _ in range(25)].count(429) == 20
    until(service, 20, DECISIONS, "denied")
    emitted = total(scrape(service.url), "headgate_events_emitted_total")
    assert emitted >= 10 + 1  # of 20 denials the first ten, and one that stands for ten
    samples = until(service, emitted, "headgate_sink_stored_total", "events", "file")
    assert samples["headgate_sink_up", "main", "events", "file"] == 1
    assert total(samples, "headgate_sink_spooled") == total(samples, "headgate_events_dropped_total") == 0
