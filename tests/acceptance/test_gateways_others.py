"""A real Caddy and a real Traefik ask before they let a call through, as they are configured in deploy/."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
import yaml
from tests.acceptance.gateways import (
    DEPLOY,
    MANY_A_MINUTE,
    TWO_A_DAY,
    Upstream,
    caddy,
    everything_passes,
    traefik,
    upstream,
)
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.support.service import Start

    Gateway = Callable[[Path, dict[int, int]], AbstractContextManager[httpx.Client]]

__all__ = ["upstream"]

_INVENTED = {
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Method": "PUT",
    "X-Forwarded-Uri": "/elsewhere",
    "X-RateLimit-Remaining": "1000",
}


def _ports(service_url: str, application: Upstream) -> dict[int, int]:
    return {8000: free_port(), 8080: httpx.URL(service_url).port or 0, 9000: application.port}


@pytest.mark.parametrize(
    ("gateway", "without_headgate"),
    [
        pytest.param(caddy, 502, marks=pytest.mark.needs("caddy")),
        pytest.param(traefik, 500, marks=pytest.mark.needs("traefik")),
    ],
)
def test_a_refusal_reaches_the_caller_as_it_is(
    gateway: Gateway, without_headgate: int, start: Start, tmp_path: Path, upstream: Upstream
) -> None:
    """The call too many gets 429 with headers and body, whatever it invents. Without headgate no call passes."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(TWO_A_DAY.replace("per: [ip]", "per: [ip], match: {endpoints: [/told], methods: [GET]}"))
    service = start("--rules", str(rules), trusted_proxies="127.0.0.1")
    with gateway(tmp_path, _ports(service.url, upstream)) as client:
        passed = [client.get("/told"), client.get("/told", headers=_INVENTED)]
        assert [answer.status_code for answer in passed] == [200, 200]
        # Caddy tells the caller, Traefik can only tell the application.
        told = [answer.headers if gateway is caddy else answer.json() for answer in passed]
        assert [each["x-ratelimit-remaining"] for each in told] == ["1", "0"]
        assert told[0]["ratelimit-policy"] == '"two";q=2;w=86400'
        refused = client.get("/told", headers=_INVENTED)
        assert refused.status_code == 429
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert 1 <= int(refused.headers["Retry-After"]) <= 86_400
        assert refused.headers["X-RateLimit-Remaining"] == "0"
        assert (refused.json()["violated-policies"], refused.json()["status"]) == (["two"], 429)
        unlimited = client.get("/other")
        assert (unlimited.text, "X-RateLimit-Limit" in unlimited.headers) == ("hello\n", False)
        service.process.kill()
        service.process.wait()
        assert [client.get("/other").status_code for _ in range(3)] == [without_headgate] * 3


@pytest.mark.parametrize(
    "gateway",
    [
        pytest.param(caddy, marks=pytest.mark.needs("caddy")),
        pytest.param(traefik, marks=pytest.mark.needs("traefik")),
    ],
)
def test_the_query_of_a_call_is_the_callers(gateway: Gateway, start: Start, tmp_path: Path, upstream: Upstream) -> None:
    """It chooses no mode, so that no caller describes its own call, and any query passes."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(TWO_A_DAY.replace("per: [ip]", "per: [ip], match: {endpoints: [/told]}"))
    service = start("--rules", str(rules), trusted_proxies="127.0.0.1")
    with gateway(tmp_path, _ports(service.url, upstream)) as client:
        invented = {"X-Original-URI": "/other", "X-Original-Method": "GET"}
        queries = ("mode=nginx", "mode=dark&page=2", "a=1", "mode=nginx")
        answers = [client.get(f"/told?{query}", headers=invented).status_code for query in queries]
        assert answers == [200, 200, 429, 429]


@pytest.mark.parametrize(
    "gateway",
    [
        pytest.param(caddy, marks=pytest.mark.needs("caddy")),
        pytest.param(traefik, marks=pytest.mark.needs("traefik")),
    ],
)
def test_upgrades_streams_and_large_bodies_pass(
    gateway: Gateway, start: Start, tmp_path: Path, upstream: Upstream
) -> None:
    """Asking before every call changes nothing about what the call may carry."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(MANY_A_MINUTE)
    service = start("--rules", str(rules))
    with gateway(tmp_path, _ports(service.url, upstream)) as client:
        everything_passes(client, upstream)


def test_istio_gets_the_filter_that_envoy_is_run_with() -> None:
    """There is no Istio here; its Envoys are given what a real Envoy is run with, but for the cluster's name."""
    chain = yaml.safe_load((DEPLOY / "envoy" / "rls.yaml").read_text())["static_resources"]["listeners"][0]
    manager = chain["filter_chains"][0]["filters"][0]["typed_config"]
    adding, describing = yaml.safe_load_all((DEPLOY / "istio" / "headgate.yaml").read_text())
    given = adding["spec"]["configPatches"][0]["patch"]["value"]
    place = given["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"]
    assert place.pop("authority") in place["cluster_name"]
    place["cluster_name"] = "headgate"
    assert given == manager["http_filters"][0]
    described = describing["spec"]["configPatches"][0]["patch"]["value"]["rate_limits"]
    assert described == manager["route_config"]["virtual_hosts"][0]["rate_limits"]
