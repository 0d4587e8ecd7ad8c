"""Imports point down: the layers of the design, as written in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.source import ROOT


def test_imports_follow_the_contracts() -> None:
    """No part of the product imports one above or beside it, and the core nothing that is not pure."""
    command = (
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"
    )
    ran = subprocess.run(  # noqa: S603 (our own words)
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout
