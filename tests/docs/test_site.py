"""What checks the built site finds what is wrong, and an index shows the README with links that work."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def _tool(root: Path, name: str, folder: str = "tools") -> Any:  # noqa: ANN401 (a script's module)
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", root / f"{folder}/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dead_links_and_foreign_files_are_found(root: Path, tmp_path: Path) -> None:
    """A link to a missing page or anchor, and a picture from elsewhere, are named; links to elsewhere are fine."""
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="other.html#there"></a><a href="https://example.com"></a>'
        '<a href="other.html#missing"></a><a href="missing.html"></a><img src="https://example.com/x.png">',
        encoding="utf-8",
    )
    (tmp_path / "other.html").write_text('<p id="there">', encoding="utf-8")
    assert _tool(root, "check_site").problems(tmp_path) == [
        "index.html loads https://example.com/x.png",
        "index.html: other.html#missing leads nowhere",
        "index.html: missing.html leads nowhere",
    ]


def test_an_index_shows_the_readme_with_links_that_work(root: Path) -> None:
    """No link or picture of the README that is published is relative, and code is as it was."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (root / "README.md").read_text(encoding="utf-8")
    published = _tool(root, "readme").absolute(text, project["urls"]["Repository"])
    targets = re.findall(r"\]\(([^)\s]+)\)", published)
    assert targets
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    assert re.findall(r"```.*?```", published, re.DOTALL) == re.findall(r"```.*?```", text, re.DOTALL)


def test_pictures_are_shown_as_files_and_not_as_pages(root: Path) -> None:
    """A picture that is a link becomes two absolute addresses: the file itself, and the page."""
    shown = _tool(root, "readme").absolute("[![p](docs/a.png)](docs/b.md#c) `[x](y)`", "https://host/r")
    assert shown == "[![p](https://host/r/raw/main/docs/a.png)](https://host/r/blob/main/docs/b.md#c) `[x](y)`"


def test_the_readme_has_the_figures_of_the_last_run(root: Path) -> None:
    """The measured table is what `make bench` wrote; `python -m bench.readme` writes it again."""
    text = (root / "README.md").read_text(encoding="utf-8")
    results = json.loads((root / "bench/results.json").read_text(encoding="utf-8"))
    assert "**missed**" in text or all(row["met"] is not False for row in results["rows"])
    assert _tool(root, "readme", "bench").updated(text, results) == text
