"""API keys: invented ones evade no limit, and none can be read in the store, in events or in the log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.support.envoy_messages import OK, answer, question
from tests.support.service import PATIENCE
from tests.support.waiting import wait_until

from headgate.core.api_key import digest_name, new_api_key, new_token

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.service import Service, Start
    from tests.support.valkey import Server

RULES = "rules: [{name: ten, per: [api_key], limits: 10/day, algorithm: fixed_window, sample: 1}]"
INVENTED = 60
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def admitted(service: Service, keys: list[str]) -> int:
    """How many checks with these keys pass, all from one address."""
    checks = [{"api_key": key, "ip": "203.0.113.9"} for key in keys]
    verdicts = service.http.post("/v1/check:batch", json={"checks": checks}).json()["verdicts"]
    return sum(verdict["allowed"] for verdict in verdicts)


def malformed() -> list[str]:
    sound = new_api_key(b"s" * 32)
    return [
        *(f"hg_{number:038d}" for number in range(INVENTED)),
        *(sound + " " * number for number in range(1, 10)),
        *(sound[:number] for number in range(3, 40)),
        *(new_token(bytes([number]) * 32) for number in range(9)),
    ]


def refuse_secrets(secrets: list[str], *texts: str) -> None:
    for secret in secrets:
        assert all(secret not in text for text in texts), secret


def test_invented_keys_evade_no_limit(start: Start, rules: Path, valkey: Server, postgres: Postgres) -> None:
    """With a database every key that it does not have is counted by address, whatever it looks like."""
    service = start(
        "--rules", str(rules), redis_url=valkey.url, database_url=postgres.new_database(), log_level="debug"
    )
    secret = service.admin.post("/v1/keys", json={"name": "mine"}).json()["secret"]
    foreign = [f"sk_live_{number}" for number in range(INVENTED)]
    keys = [*malformed(), *foreign, *(new_api_key(bytes([number]) * 32) for number in range(INVENTED)), f"{secret} "]
    assert admitted(service, keys) == 10
    assert admitted(service, [secret] * 11) == 10, "a key that is on record has a counter of its own"
    wait_until(lambda: service.admin.get("/v1/events").json()["items"])
    refuse_secrets(
        [secret, "hg_0", "sk_live"], str(valkey.ask("KEYS", "*")), service.admin.get("/v1/events").text, service.errors
    )


def test_keys_of_other_makers_are_counted_under_a_digest(
    start: Start, rules: Path, valkey: Server, tmp_path: Path
) -> None:
    """Without a database a stated key is the caller's word for it; what is malformed is still counted by address."""
    events = tmp_path / "events.jsonl"
    service = start(
        "--rules", str(rules), redis_url=valkey.url, events_file=str(events), data_dir=str(tmp_path), log_level="debug"
    )
    assert admitted(service, malformed()) == 10
    assert admitted(service, ["sk_live_1"] * 11) == 10
    assert admitted(service, ["sk_live_1 ", " sk_live_1"]) == 0
    assert admitted(service, ["sk_live_2"]) == 1
    statuses = [service.check(api_key=digest_name("sk_live_2"), ip="203.0.113.9").status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    assert admitted(service, ["sk_live_2"]) == 1, "a public name is not the key, and does not use up its limit"
    attributed = {"descriptors": [{"entries": [{"key": "api_key", "value": "sk_live_3"}]}], "domain": "d"}
    assert service.http.post("/json", json=attributed).status_code == 200
    service.close()
    secrets = ["hg_0", "sk_live", new_api_key(b"s" * 32)]
    written = "".join(path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file())
    assert "sha256:" in events.read_text()
    refuse_secrets(secrets, str(valkey.ask("KEYS", "*")), written, service.errors)


def test_stated_keys_can_count_by_address_without_a_database(start: Start, rules: Path) -> None:
    """Where the callers of `/v1/check` pass on what they were sent, no stated key has a counter of its own."""
    service = start("--rules", str(rules), on_foreign_api_key="address")
    assert admitted(service, [f"sk_live_{number}" for number in range(INVENTED)]) == 10
    assert service.check(api_key="sk_live_x", ip="203.0.113.9").status_code == 429


def admitted_by_grpc(service: Service, keys: list[str], **limit: Any) -> int:  # noqa: ANN401 (fields of a message)
    """How many calls with these keys pass over gRPC, all from one address."""
    found = re.search(r"^  grpc +(\S+)", service.output, re.MULTILINE)
    assert found is not None, service.output
    descriptors = [{"entries": {"api_key": key, "remote_address": "203.0.113.9"}} | limit for key in keys]
    with grpc.insecure_channel(found[1]) as channel:
        call: Any = channel.unary_unary(METHOD)
        answers = [answer(call(question("web", each), timeout=PATIENCE)) for each in descriptors]
    return [each.overall_code for each in answers].count(OK)


def test_grpc_counts_stated_keys_as_http_does(start: Start, rules: Path, valkey: Server) -> None:
    """Without a database too, a key that does not count by the settings has no counter of its own over gRPC."""
    service = start("--rules", str(rules), redis_url=valkey.url, on_foreign_api_key="address")
    foreign = [f"sk_live_{number}" for number in range(INVENTED)]
    assert admitted_by_grpc(service, foreign) == 10
    assert admitted(service, foreign) == 0, "it is the same counter"
    own = {"limit": {"requests_per_unit": 3, "unit": 4}}
    assert admitted_by_grpc(service, foreign, **own) == 3
    names = str(valkey.ask("KEYS", "*"))
    assert "sha256:" not in names
    refuse_secrets(["sk_live"], names)


def test_a_public_name_over_grpc_is_not_the_key(start: Start, rules: Path) -> None:
    """What can be read in events and key names does not use up the limit of the key that it stands for."""
    service = start("--rules", str(rules))
    assert admitted_by_grpc(service, [digest_name("sk_live_1")] * 11) == 10
    assert admitted_by_grpc(service, ["sk_live_1"] * 11) == 10
    assert admitted(service, ["sk_live_1"]) == 0, "it is the same counter"
    own = {"limit": {"requests_per_unit": 3, "unit": 4}}
    assert admitted_by_grpc(service, [digest_name("sk_live_1")] * 4, **own) == 3
    assert admitted_by_grpc(service, ["sk_live_1"] * 4, **own) == 3


def test_keys_that_are_not_on_record_share_the_counter_of_a_descriptors_own_limit(
    start: Start, rules: Path, postgres: Postgres
) -> None:
    """With a database, inventing keys is no way round a limit that comes with the descriptor."""
    service = start("--rules", str(rules), database_url=postgres.new_database())
    secret = service.admin.post("/v1/keys", json={"name": "mine"}).json()["secret"]
    own = {"limit": {"requests_per_unit": 3, "unit": 4}}
    foreign = [f"sk_live_{number}" for number in range(9)]
    assert admitted_by_grpc(service, foreign, **own) == 3
    assert admitted_by_grpc(service, [secret] * 4, **own) == 3, "a key that is on record has a counter of its own"
