"""The files in deploy/ that no test runs agree with the product and with each other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import headgate
from headgate.setting_effects import idle_settings
from headgate.setting_values import Role
from headgate.settings import PREFIX, Settings, given_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
SECRETS = {each.name for each in fields(Settings) if each.metadata["secret"]}
KNOWN = {PREFIX + each.name.upper() for each in fields(Settings)} | {f"{PREFIX}{name.upper()}_FILE" for name in SECRETS}
FILES = [
    *("docker/Dockerfile", "compose/compose.yaml", "systemd/headgate.service", "systemd/headgate.env"),
    *("helm/headgate/values.yaml", "helm/headgate/templates/_pod.tpl"),
    *("helm/headgate/templates/decisions.yaml", "helm/headgate/templates/admin.yaml"),
]


@pytest.mark.parametrize("name", FILES)
def test_every_setting_that_is_named_exists(name: str) -> None:
    """What the deployment files set are settings of this version."""
    named = set(re.findall(r"\bHEADGATE_[A-Z0-9_]+\b", (DEPLOY / name).read_text(encoding="utf-8")))
    assert named
    assert named <= KNOWN


def test_the_chart_is_of_this_version() -> None:
    """The chart installs the version that it was shipped with."""
    chart = yaml.safe_load((DEPLOY / "helm/headgate/Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == headgate.__version__


def test_envoy_in_the_compose_file_is_the_tested_one() -> None:
    """It differs from deploy/envoy/rls.yaml, which tests run, in the addresses of its clusters only."""
    tested = yaml.safe_load((DEPLOY / "envoy/rls.yaml").read_text(encoding="utf-8"))["static_resources"]
    shipped = yaml.safe_load((DEPLOY / "compose/envoy.yaml").read_text(encoding="utf-8"))["static_resources"]
    assert shipped["listeners"] == tested["listeners"]
    for ours, theirs in zip(shipped["clusters"], tested["clusters"], strict=True):
        ours.pop("load_assignment")
        theirs.pop("load_assignment")
        assert ours == theirs


def test_the_compose_file_gives_each_role_what_it_reads() -> None:
    """Two services decide and one administers; no setting of theirs is for the other role."""
    compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text(encoding="utf-8"))
    roles = []
    for service in compose["services"].values():
        if service["image"] != "headgate":
            continue
        command = service["command"]
        chosen = Settings(
            redis_url="redis://h", database_url="postgresql://h/d", role=Role(command[command.index("--role") + 1])
        )
        given = given_settings(service["environment"]) | {"workers"} & {word.removeprefix("--") for word in command}
        assert {"redis_url", "database_url"} <= given
        assert idle_settings(chosen, given) == []
        roles.append(chosen.role)
    assert sorted(roles) == [Role.ADMIN, Role.DECISIONS, Role.DECISIONS]


def test_whatever_the_compose_file_mounts_exists() -> None:
    """Every file of the repository that a container is given is there; secrets are made by hand."""
    compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text(encoding="utf-8"))
    mounted = [
        volume.partition(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
    assert len(mounted) >= len(compose["volumes"]) - 1
    for path in mounted:
        assert (DEPLOY / "compose" / path).resolve().is_file(), path
