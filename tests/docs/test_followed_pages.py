"""Pages whose commands are typed from top to bottom, each in an empty folder, on one service with the example rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.support.service import EXAMPLE_RULES, Service, environment
from tests.support.shell_page import follow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres

_INSTALLING: Final = re.compile(r"python3 -m venv|pip install|make |headgate (?:gateway|serve)|curl -i")
"""What sets up a machine, and what runs until it is stopped; the README's own call is tested elsewhere."""
PAGES: Final = (
    "../README.md",
    "quickstart.md",
    "operations.md",
    "how-to/model-token-budgets.md",
    "how-to/protect-logins.md",
    "how-to/sell-tiers.md",
    "how-to/roll-out-in-shadow.md",
    "how-to/when-redis-is-down.md",
)


def test_pages_can_be_followed_from_top_to_bottom(root: Path, postgres: Postgres, tmp_path: Path) -> None:
    """Every command of these pages ends as people are led to expect, and shows what the page shows."""
    database = postgres.new_database()
    service = Service("--rules", str(EXAMPLE_RULES), database_url=database, data_dir=str(tmp_path / "data"))
    try:
        settings = environment(database_url=database, url=service.url)
        addresses = {"http://127.0.0.1:8081": service.admin_url, "localhost:8080": service.url.removeprefix("http://")}
        problems = []
        for name in PAGES:
            folder = tmp_path / name.replace("/", "-").strip(".")
            folder.mkdir()
            typed = follow(root / "docs" / name, folder, settings, addresses, skip=_INSTALLING)
            assert typed, name
            problems += [f"{name}: {each.problem}" for each in typed if each.problem]
        assert not problems, "\n".join(problems)
    finally:
        service.close()
