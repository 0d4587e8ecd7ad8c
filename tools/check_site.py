"""Look at the site that `make docs` built: every link leads somewhere, and nothing is loaded from elsewhere.

    python tools/check_site.py FOLDER

Only the standard library; ends with 1 and a list if something is wrong.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADING: Final = frozenset({"script", "img", "iframe", "source", "video", "audio", "object", "embed"})
_NOT_LOADED: Final = frozenset({"canonical", "search", "index", "next", "prev", "author", "copyright"})


class Page(HTMLParser):
    """The anchors of a page, what it links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for each element."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        address = found.get("src") or found.get("data") or found.get("href")
        if address is None:
            return
        if tag in _LOADING or (tag == "link" and found.get("rel", "") not in _NOT_LOADED):
            self.loads.append(address)
        if not address.startswith(("data:", "mailto:", "#!")):
            self.links.append(address)


def problems(folder: Path) -> list[str]:
    """What is wrong with the site in a folder."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    found = [
        f"{path.relative_to(folder)} loads {each}"
        for path, page in pages.items()
        for each in page.loads
        if urlsplit(each).scheme in {"http", "https"} or each.startswith("//")
    ]
    for path, page in pages.items():
        for each in page.links:
            link = urlsplit(each)
            if link.scheme or link.netloc:
                continue
            file = (path.parent / unquote(link.path)).resolve() if link.path else path
            known = pages.get(file)
            if not file.is_file() or (known is not None and unquote(link.fragment) not in known.anchors):
                found.append(f"{path.relative_to(folder)}: {each} leads nowhere")
    return found if pages else [f"there are no pages in {folder}"]


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]).resolve())
    sys.stdout.writelines(f"{each}\n" for each in wrong)
    sys.exit(bool(wrong))
