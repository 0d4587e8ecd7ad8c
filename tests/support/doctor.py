"""What `headgate doctor` finds, by code; each finding with its remedy, or the test fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.adapters.clock import wall_clock
from headgate.cli.diagnosis.catalog import KINDS
from headgate.cli.diagnosis.examination import examine

if TYPE_CHECKING:
    from collections.abc import Callable

ANY_PORT = {"port": "0", "grpc_port": "0"}
IN_MEMORY = {"redis_url": "memory://"}


def found(clock: Callable[[], int] = wall_clock, /, **settings: str) -> dict[str, str]:
    """The code of everything that is found with these settings and no others, and what is said of it."""
    has_database = "database_url" in settings or "rules_file" not in settings
    ports = ANY_PORT | ({"admin_port": "0"} if has_database else {})  # which has no effect without one
    environ = {f"HEADGATE_{name.upper()}": text for name, text in (ports | settings).items()}
    report = asyncio.run(examine(environ, {}, clock))
    for issue in report.issues:
        assert issue.remedy == KINDS[issue.code].remedy
        assert issue.remedy.endswith(".")
        assert issue.sentence
    codes: dict[str, str] = {}
    for issue in report.issues:
        codes[issue.code] = f"{codes[issue.code]}\n{issue.sentence}" if issue.code in codes else issue.sentence
    return codes
