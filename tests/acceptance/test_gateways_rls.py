"""Envoy's rate-limit service over gRPC, asked by a plain client."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.support.envoy_messages import MESSAGES, OK, OVER_LIMIT, answer, question
from tests.support.service import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.service import Service, Start

RULES = """
rules:
  - {name: web, match: {attributes: {domain: web}}, per: [ip], limits: 3/day, algorithm: fixed_window}
  - {name: llm, match: {attributes: {domain: llm}}, per: [attribute:model], limits: 100/hour, algorithm: fixed_window}
  - {name: seen, match: {attributes: {domain: shadow}}, limits: 1/hour, action: log}
"""
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
CALLER = {"entries": {"remote_address": "203.0.113.9"}}


class Client:
    def __init__(self, service: Service) -> None:
        found = re.search(r"^  grpc +(\S+)", service.output, re.MULTILINE)
        assert found is not None, service.output
        self.address = found[1]
        self.channel = grpc.insecure_channel(self.address)

    def call(self, method: str, message: bytes) -> bytes:
        return self.method(method)(message)

    def method(self, method: str) -> Callable[[bytes], bytes]:
        made: Any = self.channel.unary_unary(method)
        return lambda message: made(message, timeout=PATIENCE)

    def ask(self, domain: str, *descriptors: dict[str, Any], hits: int = 0) -> Any:  # noqa: ANN401 (a message)
        return answer(self.call(METHOD, question(domain, *descriptors, hits=hits)))

    def code(self, message: bytes, method: str = METHOD) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError) as raised:
            self.call(method, message)
        code: grpc.StatusCode = raised.value.code()
        return code

    def health(self, service: str = "") -> int:
        message = MESSAGES["HealthCheckRequest"](service=service).SerializeToString()
        status: int = (
            MESSAGES["HealthCheckResponse"].FromString(self.call("/grpc.health.v1.Health/Check", message)).status
        )
        return status


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def client(start: Start, rules: Path) -> Iterator[Client]:
    made = Client(start("--rules", str(rules)))
    yield made
    made.channel.close()


def test_a_plain_client_is_answered(client: Client) -> None:
    """Descriptors, hits, domains, refunds, probes, shadow and limits of their own, over the wire."""
    answers = [client.ask("web", CALLER) for _ in range(4)]
    assert [each.overall_code for each in answers] == [OK] * 3 + [OVER_LIMIT]
    assert [each.statuses[0].limit_remaining for each in answers] == [2, 1, 0, 0]
    refused = answers[3]
    limit = refused.statuses[0].current_limit
    assert (limit.name, limit.requests_per_unit, limit.unit) == ("web", 3, 4)
    reset = refused.statuses[0].duration_until_reset
    assert 0 < reset.seconds + reset.nanos / 10**9 <= 86_400
    headers = {each.key: each.value for each in refused.response_headers_to_add}
    assert int(headers["retry-after"]) > 0
    assert b'"violated-policies":["web"]' in refused.raw_body
    assert client.ask("other", CALLER).overall_code == OK

    back = CALLER | {"hits_addend": {"value": 2}, "is_negative_hits": True}
    assert client.ask("web", back).statuses[0].limit_remaining == 2
    assert client.ask("web", CALLER | {"hits_addend": {"value": 2}}).overall_code == OK
    assert client.ask("web", CALLER | {"hits_addend": {"value": 0}}).overall_code == OVER_LIMIT

    two = [{"entries": {"model": name}, "hits_addend": {"value": cost}} for name, cost in (("a", 60), ("b", 10))]
    assert [each.limit_remaining for each in client.ask("llm", *two).statuses] == [40, 90]
    assert [each.code for each in client.ask("llm", *two).statuses] == [OVER_LIMIT, OK]
    assert client.ask("llm", two[1]).statuses[0].limit_remaining == 80  # what was refused was not counted

    assert {client.ask("shadow", CALLER).overall_code for _ in range(3)} == {OK}
    own = {"entries": {"a": "b"}, "limit": {"requests_per_unit": 1, "unit": 3}}
    assert [client.ask("x", own).overall_code for _ in range(2)] == [OK, OVER_LIMIT]


def test_unsound_calls_get_a_status_that_says_so(client: Client) -> None:
    """INVALID_ARGUMENT for what is no question, UNIMPLEMENTED for what is not there; the connection goes on."""
    assert client.code(question("", CALLER)) is grpc.StatusCode.INVALID_ARGUMENT
    assert client.code(question("web")) is grpc.StatusCode.INVALID_ARGUMENT
    assert client.code(b"\xff\xff") is grpc.StatusCode.INVALID_ARGUMENT
    assert client.code(b"", "/envoy.service.ratelimit.v3.RateLimitService/Other") is grpc.StatusCode.UNIMPLEMENTED
    assert client.code(bytes(100_000), "/grpc.health.v1.Health/Check") is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.ask("web", CALLER).overall_code == OK


def test_a_call_that_is_too_large_is_over_the_limit(client: Client) -> None:
    """Envoy admits a call on an error, and callers can make messages large; the connection goes on."""
    for size in (65_531, 65_532, 100_000, 1_000_000):
        made = client.ask("web", {"entries": {"a": "x" * size}})
        assert made.overall_code == OVER_LIMIT
        assert b"malformed" in made.raw_body
    assert client.ask("web", {"entries": {"a": "x" * 65_000}}).overall_code == OK


def test_health_is_told(client: Client) -> None:
    """Health v1: serving, as a whole and by name; unknown names are not found."""
    assert client.health() == 1
    assert client.health("envoy.service.ratelimit.v3.RateLimitService") == 1
    message = MESSAGES["HealthCheckRequest"](service="other").SerializeToString()
    assert client.code(message, "/grpc.health.v1.Health/Check") is grpc.StatusCode.NOT_FOUND


def test_many_calls_at_once_are_each_answered(client: Client) -> None:
    """A thousand calls on one connection, as many at a time as there may be, of which exactly 3 pass."""
    method: Any = client.channel.unary_unary(METHOD)
    calls = [method.future(question("web", CALLER), timeout=PATIENCE) for _ in range(1_500)]
    codes = [answer(call.result()).overall_code for call in calls]
    assert (codes.count(OK), codes.count(OVER_LIMIT)) == (3, 1_497)


def test_without_counters_there_is_no_answer(start: Start, tmp_path: Path, rules: Path) -> None:
    """An unreachable store is UNAVAILABLE, so that Envoy follows its own setting; a rule that denies denies."""
    rules.write_text(RULES.replace("per: [attribute:model]", "per: [attribute:model], on_store_error: deny"))
    with ExitStack() as stack:
        service = start("--rules", str(rules), redis_url=f"unix://{tmp_path}/no-server")
        client = Client(service)
        stack.callback(client.channel.close)
        assert client.code(question("web", CALLER)) is grpc.StatusCode.UNAVAILABLE
        assert client.ask("llm", {"entries": {"model": "m"}}).overall_code == OVER_LIMIT
