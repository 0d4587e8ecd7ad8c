"""The Lambda authorizer in deploy/aws, called with events of both kinds of APIs, against a real service."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.gateways import DEPLOY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.service import Start

_ARN = "arn:aws:execute-api:eu-central-1:123456789012:abc/prod/GET/api/search"
REST = {
    "type": "REQUEST",
    "methodArn": _ARN,
    "path": "/api/search",
    "httpMethod": "GET",
    "headers": {"X-Api-Key": "someone-elses", "Host": "abc.execute-api.eu-central-1.amazonaws.com"},
    "requestContext": {"identity": {"sourceIp": "203.0.113.9"}, "stage": "prod"},
}
HTTP = {
    "version": "2.0",
    "type": "REQUEST",
    "routeArn": _ARN,
    "rawPath": "/api/search",
    "headers": {"x-api-key": "someone-elses"},
    "requestContext": {"http": {"method": "GET", "path": "/api/search", "sourceIp": "203.0.113.10"}},
}


@pytest.fixture
def handler() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function that Lambda calls."""
    spec = importlib.util.spec_from_file_location("authorizer", DEPLOY / "aws" / "authorizer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[dict[str, Any]], dict[str, Any]] = module.handler
    return found


def test_it_refuses_what_headgate_refuses(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: Callable[..., dict[str, Any]]
) -> None:
    """Two requests of an address pass and the third does not, in the form that each kind of API expects."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "rules: [{name: two, per: [ip], limits: 2/day, match: {endpoints: [/api/search], methods: [GET]}}]"
    )
    monkeypatch.setenv("HEADGATE_URL", start("--rules", str(rules)).url)
    policies = [handler(REST, None) for _ in range(3)]
    effects = [each["policyDocument"]["Statement"][0]["Effect"] for each in policies]
    assert effects == ["Allow", "Allow", "Deny"]
    assert policies[2]["principalId"] == "203.0.113.9"
    assert policies[2]["context"]["retryafter"] > 0
    assert policies[0]["policyDocument"]["Statement"][0]["Resource"] == _ARN
    simple = [handler(HTTP, None) for _ in range(3)]
    assert [each["isAuthorized"] for each in simple] == [True, True, False]
    assert (simple[0]["context"]["limit"], simple[0]["context"]["policy"]) == (2, "two")


@pytest.mark.parametrize("stated", [None, "yes", "no"])
def test_it_says_what_holds_while_headgate_is_unavailable(
    stated: str | None, monkeypatch: pytest.MonkeyPatch, handler: Callable[..., dict[str, Any]]
) -> None:
    """Without an answer requests pass or not, as the variable says."""
    passes = stated != "no"
    monkeypatch.setenv("HEADGATE_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("HEADGATE_FAIL_OPEN", raising=False)
    if stated is not None:
        monkeypatch.setenv("HEADGATE_FAIL_OPEN", stated)
    assert handler(HTTP)["isAuthorized"] is passes
    assert handler(REST)["policyDocument"]["Statement"][0]["Effect"] == ("Allow" if passes else "Deny")
