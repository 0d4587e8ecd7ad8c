"""The tests on the page about tests pass, with the fixtures of the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SETTINGS: Final = """
import django
from django.conf import settings
settings.configure(ROOT_URLCONF="test_page", ALLOWED_HOSTS=["*"], SECRET_KEY="x", HEADGATE={})
django.setup()
urlpatterns = []
"""


def test_the_tests_on_the_page_pass(
    root: Path, fences: Callable[[Path, str], list[tuple[int, str]]], tmp_path: Path
) -> None:
    """The examples for each framework are tests that pytest runs as they stand there."""
    blocks = [text for _, text in fences(root / "docs/how-to/test-your-app.md", "python") if "(headgate_" in text]
    assert len(blocks) == 4
    (tmp_path / "test_page.py").write_text(_SETTINGS + "\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "headgate_pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
