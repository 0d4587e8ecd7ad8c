"""ARCHITECTURE.md names folders, modules and objects that exist."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest
from tests.architecture.source import PACKAGE, ROOT

from headgate.core.meter import Algorithm

PAGE: Final = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LINES: Final = [line for line in PAGE.splitlines() if "`" in line]
_PATH: Final = re.compile(r"(?:[a-z0-9_*]+/)*(?:[a-z0-9_*]+/|[a-zA-Z0-9_*-]+\.(?:py|lua|md))")
_NAME: Final = re.compile(r"_?[A-Z][A-Za-z_]+")
_PLACEHOLDERS: Final = ("NAME", "SUBJECT")
_FOLDERS: Final = (
    "",
    "src/headgate",
    "src/headgate/adapters",
    "src/headgate/adapters/redis",
    "src/headgate/edge",
    "docs/reference",
)


def _quoted(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Everything in backticks that has the form, with its line, in order."""
    found = ((quoted, line) for line in LINES for quoted in re.findall(r"`([^`]+)`", line))
    return [(quoted, line) for quoted, line in found if pattern.fullmatch(quoted)]


PATHS: Final = list(dict.fromkeys(quoted for quoted, _ in _quoted(_PATH)))


def _exists(path: str) -> bool:
    folders = [ROOT / folder for folder in _FOLDERS] + [path.parent for path in PACKAGE.rglob("__init__.py")]
    return any(any(folder.glob(path.rstrip("/"))) for folder in folders)


@pytest.mark.parametrize("path", [path for path in PATHS if not any(word in path for word in _PLACEHOLDERS)])
def test_every_path_exists(path: str) -> None:
    """A path that the page names is there, from the root, from the package, or inside one of its folders."""
    assert _exists(path), f"ARCHITECTURE.md names {path}, which does not exist"


def test_every_folder_of_the_product_is_named() -> None:
    """Each folder of the package has its line in the table."""
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert {folder for folder in folders if f"`src/headgate/{folder}/`" not in PAGE} == set()


def test_every_object_exists() -> None:
    """A class or constant that the page names is defined in the product."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    names = {quoted for quoted, _ in _quoted(_NAME)} - {*_PLACEHOLDERS, "COPY", "SUBJECT"}
    assert names, "the page names no object"
    assert {name for name in names if not re.search(rf"(?:class {name}\b|^{name}\b)", source, re.MULTILINE)} == set()


def test_the_test_sees_paths() -> None:
    """The page names many paths, and a wrong one would be seen."""
    assert len(PATHS) > 50
    assert not _exists("dataplane/missing.py")


def test_the_dashboard_offers_every_algorithm() -> None:
    """The editor of rules has a list of its own, which the page names: it is the one of the product."""
    editor = (PACKAGE / "edge/dashboard/static/rule_editor.js").read_text(encoding="utf-8")
    offered = re.search(r"const ALGORITHMS = (\[.*?\]);", editor)
    assert offered is not None
    assert set(json.loads(offered[1])) == {each.value for each in Algorithm}
