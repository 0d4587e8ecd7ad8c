"""What tests of the documentation share: the pages, their fenced blocks, and a clock that stands still."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\S+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
NOON_AND_15_SECONDS: Final = 1_735_732_815_000_000_000
"""2025-01-01 12:00:15 UTC, in nanoseconds: no window ends while an example runs."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a `page` runs once for each."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


@pytest.fixture
def root() -> Path:
    """Where the repository begins."""
    return ROOT


@pytest.fixture
def fences() -> Callable[[Path, str], list[tuple[int, str]]]:
    """Finds the fenced blocks of one language in a page: (line of the first line, text)."""

    def find(page: Path, language: str) -> list[tuple[int, str]]:
        text = page.read_text(encoding="utf-8")
        return [
            (text.count("\n", 0, found.start("text")) + 1, dedent(found["text"]))
            for found in FENCE.finditer(text)
            if found["language"] == language
        ]

    return find


@pytest.fixture
def reference() -> str:
    """The whole reference as one text."""
    return "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/reference").glob("*.md")))


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock stands still, so that what examples show is the same on every run."""
    for module in ("headgate.adapters.clock", "headgate.adapters.memory.store"):
        monkeypatch.setattr(f"{module}.clock_in_ns", lambda: NOON_AND_15_SECONDS)
