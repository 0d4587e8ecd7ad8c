"""`headgate migrate`: gateways' configuration, what is written, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headgate.adapters import yaml_text
from headgate.cli.commands import run
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidFields
from headgate.migrate.detect import move

if TYPE_CHECKING:
    from pathlib import Path

NGINX = """
http {
  limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;  # by address
  limit_req_zone $server_name zone=all:10m rate=600r/m;
  limit_req_status 429;
  server {
    limit_req zone=all burst=5 nodelay;
    location /search/ { limit_req zone=one burst=20; }
    location = /login { limit_req zone=one; limit_req_status 420; }
    location ~ \\.php$ { limit_req zone=one; }
  }
}
"""
KONG = """
_format_version: "3.0"
services:
  - name: shop
    routes: [{name: search, paths: [/search], methods: [GET]}]
    plugins: [{name: rate-limiting, config: {minute: 5, year: 100, policy: local, limit_by: ip, fault_tolerant: true}}]
plugins:
  - {name: rate-limiting, config: {second: 50, limit_by: service}}
  - {name: cors}
"""
ENVOY = """
domain: shop
descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}]
"""


def rules_of(text: str) -> dict[str, tuple[list[str], str, str]]:
    """Of each rule the limits, the algorithm and the action."""
    made = parse_rule_set(yaml_text.parse(text).data)
    return {rule.name: ([str(limit) for limit in rule.limits], rule.algorithm, rule.action) for rule in made.rules}


def test_nginx_becomes_rules() -> None:
    """A burst is waited for or passes at once, as nginx has it; a location that cannot be written is named."""
    moved = move(NGINX)
    assert rules_of(moved.text) == {
        "all": (["600/minute burst 6"], "token_bucket", "reject"),
        "one-search--search": (["10/second burst 21"], "leaky_bucket", "throttle"),
        "one-login": (["10/second burst 1"], "token_bucket", "reject"),
    }
    assert "status: 420" in moved.text
    assert any(note.line == 10 and "has no equivalent" in note.message for note in moved.notes)


def test_kong_becomes_rules() -> None:
    """Each plugin becomes a rule for the paths and methods of its routes; what is not carried over is named."""
    moved = move(KONG)
    assert rules_of(moved.text) == {
        "kong": (["50/second"], "fixed_window", "reject"),
        "shop": (["5/minute", "100/365d"], "fixed_window", "reject"),
    }
    notes = [note.message for note in moved.notes]
    assert "shop: fault_tolerant is not carried over" in notes
    assert "the plugin cors at kong is not carried over" in notes


def test_envoys_service_becomes_rules() -> None:
    """A configuration of envoyproxy/ratelimit is known by its domain and descriptors."""
    moved = move(ENVOY)
    assert moved.source == "envoy"
    assert len(rules_of(moved.text)) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nothing", "this is neither a Python module"),
        ("import slowapi", "no limiter is made here"),
        ("limit_req zone=x;", "names a zone that no limit_req_zone has"),
        ("limit_req_zone zone=x;", "limit_req_zone needs a key"),
        ("plugins: []", "no plugin rate-limiting is enabled"),
        ("plugins: [{name: rate-limiting}]", "has no limit"),
        ("domain: x\nnonsense: 1", "unknown field"),
    ],
)
def test_what_cannot_be_moved_says_why(text: str, sentence: str) -> None:
    """Whatever is wrong with a file, there is a sentence for it."""
    with pytest.raises(InvalidFields, match=sentence):
        move(text)


def test_the_command_writes_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the result, or writes it to a file that is not there; differences go to standard error."""
    source, made = tmp_path / "nginx.conf", tmp_path / "rules.yaml"
    source.write_text(NGINX, encoding="utf-8")
    assert run(["migrate", str(source)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("rules:")
    assert "was read as nginx" in shown.err
    assert run(["migrate", str(source), "--out", str(made)]) == 0
    assert made.read_text(encoding="utf-8") == shown.out
    made.write_text("mine", encoding="utf-8")
    assert run(["migrate", str(source), "--out", str(made)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert run(["migrate", str(source), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "nginx"
    assert run(["migrate", str(tmp_path / "missing")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    made.write_text("mine", encoding="utf-8")
    assert run(["migrate", str(made)]) == 1
    assert "cannot be migrated" in capsys.readouterr().err
