"""No command of the documentation is left out of the tests without a reason."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.docs.conftest import PAGES, ROOT
from tests.docs.typed_pages import ELSEWHERE, LEFT_OUT, PATTERNS, TYPED
from tests.support.shell_page import Command, commands

if TYPE_CHECKING:
    from pathlib import Path

_FENCE: Final = re.compile(r"^ *```(?P<language>\S*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SHELL: Final = re.compile(
    r"^ *(?:\$ |(?:[A-Z_]+=\S+ )*(?:\S*/)?"
    r"(?:headgate|curl|pip|python3?|make|export|docker|kubectl|helm|valkey-\w+|psql|pg_\w+) )",
    re.MULTILINE,
)
LANGUAGES: Final = {"console", "python", "yaml", "json", "http", "sql", "text", ""}
"""Of blocks. Commands are `console`, with a `$` before each; `text` and blocks without a language are not run."""

JSON: Final = {
    "docs/how-to/watch-it.md": 1,  # tests/acceptance/test_json_logs.py
    "docs/reference/admin-api.md": 2,  # tests/docs/test_followed_pages.py
    "docs/reference/cli.md": 2,  # the same
    "docs/reference/http.md": 1,  # tests/docs/test_http_example.py
}
"""How many blocks of JSON a page has, and the test that compares them."""


def _everything() -> list[tuple[Path, Command]]:
    return [(page, command) for page in PAGES for command in commands(page)]


def _is_left_out(command: Command) -> bool:
    return any(pattern.match(command.line) for pattern in PATTERNS)


def test_every_command_is_typed_or_left_out_with_a_reason() -> None:
    """A page with commands is followed by a test, unless each of them is in the list of what cannot run here."""
    typed = {(ROOT / "docs" / name).resolve() for name in TYPED}
    forgotten = [
        f"{page.relative_to(ROOT)}: $ {command.line}"
        for page, command in _everything()
        if page not in typed and str(page.relative_to(ROOT)) not in ELSEWHERE and not _is_left_out(command)
    ]
    assert forgotten == []


def test_what_is_left_out_stands_on_a_page() -> None:
    """Every entry of the list matches a command, every page that is followed has some, and so has each elsewhere."""
    lines = [command.line for _, command in _everything()]
    assert [pattern for pattern in LEFT_OUT if not any(re.match(pattern, line) for line in lines)] == []
    assert all(LEFT_OUT.values())
    typed = {page for page, command in _everything() if not _is_left_out(command)}
    assert {(ROOT / "docs" / name).resolve() for name in TYPED} | {ROOT / name for name in ELSEWHERE} == typed


def test_commands_stand_in_blocks_that_are_typed(page: Path) -> None:
    """No command hides in a block of another language."""
    for block in _FENCE.finditer(page.read_text(encoding="utf-8")):
        assert block["language"] in LANGUAGES, page
        if block["language"] in {"text", ""}:
            assert not _SHELL.search(block["text"]), block["text"]


def test_every_json_block_is_compared_with_the_product() -> None:
    """Each stands on a page that a test reads; a block on another page needs a test of its own."""
    found = Counter(
        str(page.relative_to(ROOT))
        for page in PAGES
        for block in _FENCE.finditer(page.read_text(encoding="utf-8"))
        if block["language"] == "json"
    )
    assert found == JSON
