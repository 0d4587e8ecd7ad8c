from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request, parse_rule_set
from headgate.cli.banner import Addresses, example_commands, hints
from headgate.dataplane.limiter import run_now
from headgate.edge.listening import Address

if TYPE_CHECKING:
    from pathlib import Path

TIERS = {"free": {"limits": {"x": "3/minute"}}, "paid": {"limits": {"x": "unlimited"}}}


def asked(rules: list[dict[str, Any]], **more: Any) -> tuple[dict[str, Any], str]:  # noqa: ANN401 (data of any shape)
    """The request that is suggested for these rules, and the whole of the second command."""
    once, until_refused, look = example_commands(parse_rule_set({"rules": rules, **more}), "http://h")
    words = shlex.split(once.command.replace("\\\n", ""))
    assert words[:4] == ["curl", "-i", "-X", "POST"]
    assert " h/v1/peek " in look.command
    return json.loads(words[-1]), until_refused.command


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        ({"limits": "3/minute"}, {}),
        ({"limits": ["3/minute", "50/hour"]}, {}),
        ({"limits": "3/minute", "match": {"endpoints": ["/a/{id}/b"], "methods": ["PUT", "POST"]}}, {}),
        ({"limits": "3/minute", "match": {"endpoints": ["/a/*"], "ip_ranges": ["10.0.0.0/8"]}}, {}),
        ({"limits": "3/minute", "match": {"attributes": {"region": "it's"}}, "per": ["ip"]}, {}),
        ({"limits": "tier:x"}, {"tiers": TIERS}),
        ({"limits": "3/minute", "match": {"tiers": ["paid"]}}, {"tiers": TIERS}),
    ],
)
def test_the_suggested_request_reaches_the_limit(rule: dict[str, Any], more: dict[str, Any]) -> None:
    """Whatever a rule asks for, the suggested request meets it, and the suggested loop goes past its limit."""
    rules: list[dict[str, Any]] = [
        {"name": "off", "limits": "1/minute", "enabled": False},
        {"name": "large", "limits": "1000000/minute", "layer": "l"},
        {"name": "only-watched", "limits": "1/minute", "action": "log", "layer": "w"},
        {"name": "tried", **rule},
    ]
    request, loop = asked(rules, **more)
    assert "seq 5" in loop
    limiter = Limiter.open(rules={"rules": rules, **more})
    verdicts = [run_now(limiter.check(Request(**request))) for _ in range(5)]
    assert [verdict.allowed for verdict in verdicts] == [True] * 3 + [False] * 2
    assert verdicts[-1].policy is not None
    assert verdicts[-1].policy.startswith("tried")


def test_rules_that_refuse_nothing_soon_have_something_to_try_too() -> None:
    """Without a limit that is soon reached the commands ask for the plainest request, a dozen times."""
    assert asked([]) == ({"user": "u1", "method": "GET", "path": "/"}, asked([])[1])
    assert "seq 12" in asked([{"name": "free-tier", "limits": "tier:x", "match": {"tiers": ["paid"]}}], tiers=TIERS)[1]


def test_a_newcomer_reads_how_to_call_headgate_and_how_to_change_ports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After `make serve` the command is in the environment of the clone, which no shell knows yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv/bin/headgate"), "serve"])
    where = Addresses(Address("127.0.0.1", 8080), Address("127.0.0.1", 8081), None)
    assert hints(where) == [
        "http://127.0.0.1:8081 in a browser is the dashboard",
        "in another terminal, call headgate as .venv/bin/headgate, or after: source .venv/bin/activate",
        "other ports: HEADGATE_PORT, HEADGATE_ADMIN_PORT",
    ]


def test_who_has_the_command_reads_nothing_about_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command on the PATH is called by its name."""
    program = tmp_path / "headgate"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(program), "serve"])
    assert hints(Addresses(None, None, Address("127.0.0.1", 8082))) == ["other ports: HEADGATE_GRPC_PORT"]
