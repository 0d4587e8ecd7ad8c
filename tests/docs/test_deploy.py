"""The files in deploy/ that no test runs agree with the product and with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

import headgate
from headgate.setting_effects import idle_settings
from headgate.setting_values import Role
from headgate.settings import PREFIX, Settings, given_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
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


def test_the_chart_refuses_every_value_that_it_does_not_read() -> None:
    """It knows the values at the top of values.yaml, and of those that were there once, where they are now."""
    values = yaml.safe_load((DEPLOY / "helm/headgate/values.yaml").read_text(encoding="utf-8"))
    text = (DEPLOY / "helm/headgate/templates/_values.tpl").read_text(encoding="utf-8")
    lists = re.findall(r'define "headgate\.\w+Values" -\}\}\n(.*?)\n\{\{- end', text, re.DOTALL)
    moved, known = map(yaml.safe_load, lists[:2])
    assert set(known) == values.keys() | {"enabled", "global"}  # which Helm gives to a chart inside another
    assert not moved.keys() & values.keys()
    for place in moved.values():
        for path in place.split(" and "):
            role, _, name = path.partition(".")
            assert name in values[role], path


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
    assert len(mounted) >= 7
    for path in mounted:
        assert (DEPLOY / "compose" / path).resolve().is_file(), path


def test_a_system_call_that_systemd_filters_fails_and_kills_nothing() -> None:
    """The program expects that it may not raise a limit or lower a priority; SIGSYS, the default, would end it."""
    lines = (DEPLOY / "systemd/headgate.service").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("SystemCallFilter=") for line in lines)
    assert "SystemCallErrorNumber=EPERM" in lines


def test_the_services_of_the_compose_file_can_read_their_secrets(tmp_path: Path) -> None:
    """Without capabilities, user 10001 cannot read a file of another user with mode 600: it gets files of its own."""
    services = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text(encoding="utf-8"))["services"]
    read = set()
    for service in (each for each in services.values() if each["image"] == "headgate"):
        assert "secrets" not in service
        assert "made:/run/made:ro" in service["volumes"]
        read |= {value for name, value in service["environment"].items() if name.endswith("_FILE")}
    given, made, programs = tmp_path / "given", tmp_path / "made", tmp_path / "programs"
    for_admin = tmp_path / "made-admin"
    for folder in (given, made, for_admin, programs):
        folder.mkdir()
    for name in services["secrets"]["secrets"]:
        (given / name).write_text(f"the-{name}\n", encoding="utf-8")
    (programs / "chown").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/chown\n', encoding="utf-8")
    (programs / "chown").chmod(0o700)
    shell, option, script = services["secrets"]["entrypoint"]
    script = script.replace("$$", "$").replace("/run/secrets", str(given)).replace("/made", str(made))
    search = f"{programs}:{os.environ['PATH']}"
    subprocess.run([shell, option, script], check=True, env={"PATH": search})  # noqa: S603 (our own file)

    all_made = [*made.iterdir(), *for_admin.iterdir()]
    assert {f"/run/{file.parent.name}/{file.name}" for file in all_made} == read
    assert {file.stat().st_mode & 0o777 for file in all_made} == {0o400}
    mounts = {name for name, each in services.items() if "made-admin:/run/made-admin:ro" in each.get("volumes", ())}
    assert mounts == {"headgate-admin"}, "services that decide have no use for the admin token"
    owner, *files = (tmp_path / "chown").read_text(encoding="utf-8").split()
    assert (owner, {*files}) == ("10001:10001", {str(file) for file in all_made})
    assert (for_admin / "admin_token").read_text(encoding="utf-8") == "the-admin_token\n"
    assert "headgate:the-postgres_password@postgres" in (made / "database_url").read_text(encoding="utf-8")


def test_the_image_is_built_from_what_docker_is_given(tmp_path: Path) -> None:
    """What .dockerignore lets through and the first stage copies makes a wheel with everything in it."""
    stage = (DEPLOY / "docker/Dockerfile").read_text(encoding="utf-8").split("\nFROM ")[1]
    for line in re.findall(r"^COPY (.*)$", stage, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            copied = [file for file in _files(ROOT / source) if _docker_is_given(file.relative_to(ROOT))]
            assert copied, f"COPY {source}"
            for file in copied:
                place = tmp_path / target / (file.relative_to(ROOT / source) if len(sources) == 1 else source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = {*zipfile.ZipFile(wheel).namelist()}
    expected = {str(file.relative_to(ROOT / "src")) for file in _files(ROOT / "src") if "__pycache__" not in file.parts}
    assert expected <= names


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def _docker_is_given(path: Path) -> bool:
    """The last line of .dockerignore that fits a path, or a folder that it is in, decides."""
    given = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split():
        pattern = line.removeprefix("!").removeprefix("**/")
        names = [str(each) for each in (path, *path.parents)]
        if any(
            fnmatch(name, pattern) for name in [*names, *(Path(name).name for name in names if line.startswith("**/"))]
        ):
            given = line.startswith("!")
    return given
