"""Links inside the repository lead somewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE: Final = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#+ +(?P<text>.+)$", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = [found["text"].strip().lower() for found in _HEADING.finditer(text)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file or heading of this repository leads to one that exists."""
    broken = []
    for found in _LINK.finditer(_CODE.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = found["target"].partition("#")
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.is_file() or (anchor and anchor not in _anchors(file)):
            broken.append(found["target"])
    assert not broken


def test_every_folder_of_configuration_is_on_a_page(root: Path) -> None:
    """A page names each folder of `deploy/`, or a file in it."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (root / "docs").rglob("*.md"))
    folders = {folder.name for folder in (root / "deploy").iterdir() if folder.is_dir()}
    assert {name for name in folders if f"deploy/{name}/" not in pages} == set()


def test_every_page_is_reachable(root: Path) -> None:
    """Every page can be reached from the README by following links."""
    found, waiting = set(), [root / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in found or page.suffix != ".md" or not page.is_file():
            continue
        found.add(page)
        links = _LINK.finditer(page.read_text(encoding="utf-8"))
        waiting += [(page.parent / link["target"].partition("#")[0]).resolve() for link in links]
    assert not set((root / "docs").rglob("*.md")) - found
