"""The test suite itself: a test that never ends fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.architecture.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HANGS = "import threading\n\ndef test_it():\n    threading.Event().wait()\n"


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["one process", "workers"])
def test_a_test_that_hangs_fails(tmp_path: Path, options: list[str]) -> None:
    """The process says where it hangs, and the run fails."""
    file = tmp_path / "test_it.py"
    file.write_text(HANGS, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.hanging",
        "--rootdir",
        str(tmp_path),
        *options,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COVERAGE_"))}
    done = subprocess.run(  # noqa: S603 (ours)
        [*command, "--max-worker-restart=0" if options else "-q", str(file)],
        cwd=ROOT,
        env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TEST_SECONDS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f'File "{file}", line 4 in test_it' in done.stdout + done.stderr
