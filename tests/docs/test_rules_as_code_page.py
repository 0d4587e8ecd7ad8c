"""The page on rules as code, followed line by line in an empty folder, on a service with the example rules."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.service import EXAMPLE_RULES, HEADGATE, Service, environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.postgres import Postgres

_ADDRESS: Final = "http://127.0.0.1:8081"
_END: Final = re.compile(r"^\x01(\d+)\n", re.MULTILINE)


def _typed(blocks: list[tuple[int, str]]) -> list[tuple[str, list[str]]]:
    """Every command of the page, with the lines that the page shows of its output."""
    typed: list[tuple[str, list[str]]] = []
    for _, text in blocks:
        for line in text.splitlines():
            if line.startswith("$ "):
                typed.append((line.removeprefix("$ "), []))
            else:
                typed[-1][1].append(line)
    return typed


def _expected(command: str, shown: list[str]) -> set[int]:
    """The exit codes that the page leads people to expect."""
    is_refused = any(line.startswith("headgate: ") for line in shown) and " disable " not in command
    return {1} if is_refused else {0, 2} if " plan " in command else {0}


def test_the_page_can_be_followed_from_top_to_bottom(
    root: Path, fences: Callable[[Path, str], list[tuple[int, str]]], postgres: Postgres, tmp_path: Path
) -> None:
    """Every command does what the page says; at the end no rule of the example is lost."""
    typed = _typed(fences(root / "docs/how-to/rules-as-code.md", "console"))
    database = postgres.new_database()
    service = Service("--rules", str(EXAMPLE_RULES), database_url=database, data_dir=str(tmp_path / "data"))
    try:
        folder = tmp_path / "project"
        folder.mkdir()
        script = "".join(f"{command}\nprintf '\\001%s\\n' $?\n" for command, _ in typed)
        done = subprocess.run(
            ["bash"],  # noqa: S607 (whichever there is)
            input=script.replace(_ADDRESS, service.admin_url),
            cwd=folder,
            env=environment(database_url=database) | {"PATH": f"{Path(HEADGATE).parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        parts = _END.split(done.stdout)  # output, exit code, output, exit code, …
        outputs = list(zip(parts[::2], parts[1::2], strict=False))
        assert len(outputs) == len(typed), done.stdout
        for (command, shown), (output, code) in zip(typed, outputs, strict=True):
            assert int(code) in _expected(command, shown), (command, output)
            assert [line for line in shown if line not in output] == [], (command, output)
        names = {rule["name"] for rule in service.admin.get("/v1/ruleset").json()["rules"]}
        assert {"health", "login", "search", "exports", "facets", "suggest", "web.remote_address"} <= names
        owners = {rule["owner"] for rule in service.admin.get("/v1/rules?limit=100").json()["items"]}
        assert owners == {"platform", "search", "gateway"}
        assert service.admin.get("/v1/users/u_42").json()["overrides"] == {"exports": ["500/hour"]}
    finally:
        service.close()
