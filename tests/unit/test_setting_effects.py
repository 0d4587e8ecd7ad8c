"""What is said of settings and fields of rules that have no effect."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.options import refuse_idle_settings
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidSettings
from headgate.setting_effects import idle_rule_fields, idle_settings
from headgate.setting_values import Role
from headgate.settings import Settings, complete, from_environment, given_settings

ON_MEMORY = Settings(redis_url="memory://")
ON_SERVERS = Settings(redis_url="redis://h", database_url="postgresql://h/d")


def test_only_what_is_given_is_named() -> None:
    """No operator has asked for a default, so nothing is said of it."""
    assert idle_settings(ON_MEMORY, ()) == []
    assert [each.name for each in idle_settings(ON_MEMORY, {"admin_port", "port"})] == ["admin_port"]


def test_a_variable_that_says_the_default_is_given() -> None:
    """An operator who writes it relies on it. A file can hold a secret, and an empty variable says nothing."""
    environ = {"HEADGATE_API_KEY_HEADER": "X-API-Key", "HEADGATE_ADMIN_TOKEN_FILE": "/t", "HEADGATE_REGION": " "}
    assert given_settings(environ) == {"api_key_header", "admin_token"}


def test_without_the_extra_the_settings_of_grpc_have_no_effect() -> None:
    """The rate-limit service of Envoy does not run then."""
    given = {"grpc_host", "grpc_port", "rls_on_overload"}
    assert not idle_settings(ON_SERVERS, given)
    found = idle_settings(ON_SERVERS, given, has_grpc=False)
    assert {each.name for each in found} == given
    assert "headgate[grpc]" in found[0].reason


def test_a_rules_file_is_for_the_role_that_administers() -> None:
    """A service that only decides reads the rules of its database; without one it reads the file."""
    for role, says_so in ((Role.DECISIONS, True), (Role.ADMIN, False), (Role.ALL, False)):
        found = idle_settings(replace(ON_SERVERS, role=role, rules_file=Path("r.yaml")), {"rules_file"})
        assert bool(found) is says_so
    assert not idle_settings(replace(ON_MEMORY, role=Role.DECISIONS, rules_file=Path("r.yaml")), {"rules_file"})


def test_a_file_on_an_embedded_store_has_a_folder() -> None:
    """The data directory has an effect as soon as something is kept there."""
    assert not idle_settings(Settings(redis_url="embedded://"), {"data_dir"})
    assert idle_settings(ON_MEMORY, {"data_dir"})


def test_a_start_names_the_option_or_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning says what has no effect under the name that it was given by, and what to do."""
    monkeypatch.setenv("HEADGATE_REGION", "eu")
    warnings = refuse_idle_settings(ON_MEMORY, {"admin_port": "0", "port": None})
    assert [line.partition(" has no effect: ")[0] for line in warnings] == ["--admin-port", "HEADGATE_REGION"]
    assert warnings[0].endswith("set HEADGATE_DATABASE_URL")


def test_a_setting_that_repeats_its_default_is_only_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of settings that list all of them still start a service without a database."""
    monkeypatch.setenv("HEADGATE_API_KEY_HEADER", Settings().api_key_header)
    monkeypatch.setenv("HEADGATE_ON_UNKNOWN_IDENTITY", Settings().on_unknown_identity.value)
    monkeypatch.setenv("HEADGATE_RECORD_CACHE_MB", "7")
    warnings = refuse_idle_settings(ON_MEMORY, {})
    names = ["HEADGATE_API_KEY_HEADER", "HEADGATE_ON_UNKNOWN_IDENTITY", "HEADGATE_RECORD_CACHE_MB"]
    assert [line.partition(" has no effect: ")[0] for line in warnings] == names


def test_a_start_is_refused_with_all_that_must_not_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings about who a caller is stop the start, all of them in one message."""
    monkeypatch.setenv("HEADGATE_API_KEY_HEADER", "X-Key")
    monkeypatch.setenv("HEADGATE_JWT_ISSUER", "https://login.example.com/")
    with pytest.raises(InvalidSettings, match=r"HEADGATE_API_KEY_HEADER has no effect.*; HEADGATE_JWT_ISSUER has no"):
        refuse_idle_settings(from_environment({**os.environ, "HEADGATE_REDIS_URL": "memory://"}), {})
    assert refuse_idle_settings(complete(Settings(jwt_algorithms=("HS256",))), {}) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("on_store_error", "deny"), ("on_overload", "deny"), ("wait_replicas", 1), ("spread", "leased"), ("sample", 1)],
)
def test_fields_of_rules_are_named_too(field: str, value: Any) -> None:  # noqa: ANN401 (of any field)
    """What a rule says of servers has no effect in memory; on servers it has."""
    rules = parse_rule_set([{"name": f"r{number}", "limits": "5/minute", field: value} for number in range(7)])
    (sentence,) = idle_rule_fields(rules, ON_MEMORY)
    assert sentence.startswith(f"{field} of r0, r1, r2, r3, r4 and 2 more has no effect: ")
    assert idle_rule_fields(rules, ON_SERVERS) == []
    assert idle_rule_fields(parse_rule_set([{"name": "r", "limits": "5/minute"}]), ON_MEMORY) == []


def test_shards_need_several_servers() -> None:
    """On one server a counter in parts gains nothing, and a start says so; on a cluster or ring nothing is said."""
    rules = parse_rule_set([{"name": "all", "limits": "5/minute", "spread": {"shards": 8}}])
    for url in ("memory://", "redis://localhost", "redis+sentinel://a/b", "embedded://"):
        (sentence,) = idle_rule_fields(rules, Settings(redis_url=url))
        assert sentence.startswith("spread of all has no effect: shards are on different servers")
    assert idle_rule_fields(rules, Settings(redis_url="redis+cluster://a,b")) == []
    assert idle_rule_fields(rules, Settings(redis_url="rediss+ring://a,b")) == []
