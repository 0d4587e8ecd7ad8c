"""How Sphinx builds these pages into a site with search: `make docs`.

The pages are plain Markdown that GitHub shows too, so nothing in them is written for Sphinx. What it needs besides is
made here: the side bar from the lists of links in README pages, and absolute addresses for links that leave `docs/`.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY: Final = PROJECT["urls"]["Repository"]

_LINK: Final = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_CODE_OR_LINK: Final = re.compile(rf"^ *```.*?^ *```$|`[^`\n]*`|{_LINK.pattern}", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{2,3} +(?P<text>.+)$", re.MULTILINE)
_PAGES_WITH_LISTS: Final = ("README", "algorithms/README", "decisions/README")
_SCRIPTS: Final = {"algorithms/compare": ("algorithms.js", "compare.js")}

project = "Headgate"
author = "The Headgate developers"
project_copyright = author
_VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "src/headgate/__init__.py").read_text(encoding="utf-8"))
release = version = _VERSION[1] if _VERSION else ""
extensions = ["myst_parser"]
root_doc = "README"
myst_heading_anchors = 4  # the names that GitHub gives to headings
highlight_language = "none"  # a block that names no language is a drawing
html_theme = "furo"
html_title = f"Headgate {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "../src/headgate/edge/dashboard/static/icon.svg"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "source_repository": f"{REPOSITORY}/",
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#0b6e4f", "color-brand-content": "#0b6e4f"},
    "dark_css_variables": {"color-brand-primary": "#5fd3a8", "color-brand-content": "#5fd3a8"},
}


def _outside(page: Path, text: str) -> str:
    """Links to files of the repository that are not in docs/ lead to the repository."""

    def absolute(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or target.startswith(("https:", "http:", "mailto:")) or found["text"].startswith("!"):
            return found[0]  # Sphinx copies pictures from anywhere
        file = (page.parent / target).resolve()
        if file.is_relative_to(DOCS):
            return found[0]
        return f"{found['text']}({REPOSITORY}/blob/main/{file.relative_to(ROOT)}{found['anchor'] or ''})"

    return _CODE_OR_LINK.sub(absolute, text)


def _side_bar(page: Path, text: str) -> str:
    """The pages in this folder that each section links, as a hidden table of contents with the section's name."""
    parts = ["", *_HEADING.split(text)]  # caption, section, caption, section, …
    seen, tables = set(), []
    for caption, section in zip(parts[::2], parts[1::2], strict=True):
        links = [found["target"] for found in _LINK.finditer(section) if found["target"].endswith(".md")]
        inside = [each for each in links if (page.parent / each).resolve().is_relative_to(page.parent)]
        listed = [each.removesuffix(".md") for each in dict.fromkeys(inside) if each not in seen]
        seen.update(inside)
        if listed:
            options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
            tables.append(f"```{{toctree}}\n{options}\n" + "\n".join(listed) + "\n```\n")
    return "\n".join(["", *tables])


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    page = Path(app.srcdir) / f"{docname}.md"
    text = source[0]
    source[0] = _outside(page, text) + (_side_bar(page, text) if docname in _PAGES_WITH_LISTS else "")


def _scripts(app: Sphinx, pagename: str, _template: str, _context: dict[str, Any], _tree: object) -> None:
    for name in _SCRIPTS.get(pagename, ()):
        app.add_js_file(name)


def _first_page(app: Sphinx, failed: Exception | None) -> None:
    """Servers look for index.html."""
    if failed is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("html-page-context", _scripts)
    app.connect("build-finished", _first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
