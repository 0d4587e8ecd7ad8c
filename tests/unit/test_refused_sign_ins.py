"""Callers without the right token are counted, and logged in few lines that never hold a token."""

from __future__ import annotations

import logging
from typing import Final

import pytest

from headgate import Limiter
from headgate.cli.token_rules import check_tokens
from headgate.core.metrics import Sample
from headgate.dataplane.limiter import run_now
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.edge.problems import LogLimit
from headgate.edge.refused_sign_ins import NO_TOKEN, WRONG_TOKEN, RefusedSignIns
from headgate.errors import InvalidSettings
from headgate.protocols.http1.messages import Head
from headgate.settings import Settings, from_environment

RIGHT: Final = "a-token-that-is-long-enough"


def test_a_flood_of_wrong_tokens_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged at once, the others as a number; all of them are counted."""
    now = 0.0
    refused = RefusedSignIns("admin", LogLimit(lambda: now))
    with caplog.at_level(logging.WARNING, "headgate"):
        for _ in range(1_000):
            refused.count(WRONG_TOKEN, "192.0.2.9:47")
        now = 60.0
        refused.count(WRONG_TOKEN)
        refused.count(NO_TOKEN)
    assert caplog.messages == [
        "sign-ins refused on port admin: 1 since the last such line, 1 in all, reason wrong token; client 192.0.2.9:47",
        "sign-ins refused on port admin: 1000 since the last such line, 1001 in all, reason wrong token",
        "sign-ins refused on port admin: 1 since the last such line, 1 in all, reason no token",
    ]
    assert list(refused.samples()) == [
        Sample("headgate_sign_ins_refused_total", 1_001, ("admin", "wrong token")),
        Sample("headgate_sign_ins_refused_total", 1, ("admin", "no token")),
    ]


def test_the_decision_service_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    """With the address of the caller in the log, and without what it has sent."""
    service = DecisionService(Limiter.open(rules=[]), token=RIGHT)
    for lines in ([], [("x-headgate-token", "guessed")], [("x-headgate-token", RIGHT)]):
        head = Head("GET", "/v1/forward-auth", "", lines)
        run_now(service.answer(HttpRequest(head, client="203.0.113.9:4711")))
    counted = {each.labels: each.value for each in service.samples() if "sign_ins" in each.name}
    assert counted == {("http", "no token"): 1, ("http", "wrong token"): 1}
    assert "client 203.0.113.9:4711" in caplog.text
    assert "guessed" not in caplog.text


def _settings(name: str, token: str) -> Settings:
    return from_environment({f"HEADGATE_{name.upper()}": token})


@pytest.mark.parametrize("name", ["admin_token", "service_token"])
@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("x", "has 1 characters, and fewer than 16 can be guessed"),
        ("fifteen-letters", "has 15 characters"),
        ("hgt_UzP2PtLvokH4L3Sr2M6qt5ZnrmDcnTLJ3c0YZ", "is not whole"),
        ("a token with blanks in it", "has characters that no header can hold"),
        ("sixteen-letters-é", "has characters that no header can hold"),
    ],
)
def test_a_token_that_can_be_guessed_is_refused(name: str, token: str, sentence: str) -> None:
    """The service does not start with it, and says how to make a better one."""
    with pytest.raises(InvalidSettings, match=sentence) as refused:
        check_tokens(_settings(name, token))
    assert f"HEADGATE_{name.upper()} " in str(refused.value)
    check_tokens(_settings(name, RIGHT))
