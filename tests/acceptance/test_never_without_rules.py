"""A service that cannot get its rules: it runs on the file if there is one, and else says that it cannot decide."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.acceptance.test_workers import post
from tests.support.envoy_messages import MESSAGES
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.service import Service, Start
    from tests.support.valkey import Server

PATIENCE = 20.0
TOKEN = "a-token-of-the-test"  # noqa: S105 (used only here)
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
STRICT = "rules: [{name: strict, per: [user], limits: 2/day, on_store_error: deny}]"


@pytest.fixture
def servers(postgres: Postgres, valkey: Server) -> Iterator[tuple[Postgres, Server]]:
    """Both servers, running again when the test ends."""
    valkey.revive()
    valkey.ask("FLUSHALL")
    yield postgres, valkey
    postgres.revive()
    valkey.revive()


def _envoy(service: Service) -> str:
    """How a call of Envoy ends."""
    found = re.search(r"^  grpc +(\S+)", service.output, re.MULTILINE)
    assert found is not None
    question = MESSAGES["RateLimitRequest"](domain="d")
    question.descriptors.add().entries.add(key="user", value="u1")
    with grpc.insecure_channel(found[1]) as channel:
        try:
            channel.unary_unary(METHOD)(question.SerializeToString(), timeout=PATIENCE)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_runs_on_its_file_while_the_database_is_unavailable(
    start: Start, servers: tuple[Postgres, Server], tmp_path: Path, workers: int
) -> None:
    """Nothing is exempt, /readyz and the log say what it runs on, and the database takes over once it answers."""
    postgres, valkey = servers
    url, file = postgres.new_database(), tmp_path / "rules.yaml"
    file.write_text(STRICT)
    postgres.kill()
    store = f"{valkey.url}?deadline_ms=10000"  # a busy machine is no outage
    service = start(
        *("--rules", str(file), "--workers", str(workers)),
        database_url=url,
        redis_url=store,
        data_dir=str(tmp_path / "data"),
        admin_token=TOKEN,
    )
    assert [post(service, "/v1/check", user="u1")[0] for _ in range(8)] == [200, 200] + [429] * 6
    ready = service.http.get("/readyz")
    assert (ready.status_code, ready.json()["rules"]) == (200, "file")
    service.wait_for_error(r"rules file \S+rules.yaml active, until the database or redis answers and has rules")
    file.unlink()
    postgres.restart()
    # What the file said is not lost with it, though it was never published.
    wait_until(lambda: service.admin.get("/readyz").status_code == 200)
    assert post(service, "/v1/peek", user="u1")[0] == 429
    file.write_text(STRICT.replace("2/day", "5/day"))
    wait_until(lambda: all(post(service, "/v1/peek", user="u1")[1]["limit"] == 5 for _ in range(2 * workers)))
    wait_until(lambda: service.http.get("/readyz").json()["rules"] in {"feed", "database"})


@pytest.mark.parametrize("file", ["none", "unreadable"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_that_knows_of_no_rules_decides_nothing(
    start: Start, servers: tuple[Postgres, Server], tmp_path: Path, workers: int, file: str
) -> None:
    """Every way to ask is answered with 503, a sentence and Retry-After, Envoy with UNAVAILABLE."""
    postgres, valkey = servers
    url = postgres.new_database()
    postgres.kill()
    options = ["--workers", str(workers)]
    if file == "unreadable":
        (tmp_path / "rules.yaml").write_text("rules: {")
        options += ["--rules", str(tmp_path / "rules.yaml")]
    service = start(
        *options, database_url=url, redis_url=valkey.url, data_dir=str(tmp_path / "data"), admin_token=TOKEN
    )
    for path in ("/v1/check", "/v1/peek", "/v1/reserve", "/v1/forward-auth"):
        answer = service.http.post(path, json={"user": "u1"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["message"].startswith("no rules are known yet")
    assert service.http.post("/v1/check:batch", json={"checks": [{"user": "u1"}]}).status_code == 503
    assert service.http.post("/json", json={"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}).is_error
    assert _envoy(service) == "UNAVAILABLE"
    ready = service.http.get("/readyz")
    assert (ready.status_code, ready.json()["status"], ready.json()["rules"]) == (503, "waiting for rules", "none")
    assert service.http.post("/v1/reserve", json={"key": "k", "limit": "5/day", "cost": 1}).status_code == 200
    postgres.restart()
    if file == "unreadable":
        (tmp_path / "rules.yaml").write_text(STRICT)
    wait_until(lambda: service.http.get("/readyz").status_code == 200)
    verdict = service.check(user="u1").json()
    assert (verdict["allowed"], verdict["limit"]) == (True, 2 if file == "unreadable" else None)


def test_a_service_that_knows_of_no_rules_can_be_told_to_admit(
    start: Start, servers: tuple[Postgres, Server], tmp_path: Path
) -> None:
    """With HEADGATE_ON_NO_RULES=allow the verdict says that it is exempt for want of rules; it is not ready."""
    postgres, valkey = servers
    url = postgres.new_database()
    postgres.kill()
    service = start(
        database_url=url, redis_url=valkey.url, data_dir=str(tmp_path), admin_token=TOKEN, on_no_rules="allow"
    )
    verdict = service.check(user="u1").json()
    assert (verdict["allowed"], verdict["source"], verdict["policy"]) == (True, "exempt", "no-rules")
    assert service.http.get("/v1/forward-auth").status_code == 200
    assert _envoy(service) == "OK"
    assert service.http.get("/readyz").status_code == 503
