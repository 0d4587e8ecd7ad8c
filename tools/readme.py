"""The README as package indexes show it: with absolute links and pictures. Hatchling runs this when it builds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PARTS: Final = re.compile(
    r"^```.*?^```$"  # a block of code
    r"|`[^`\n]*`"
    r"|(?P<picture>!?)\[(?P<text>(?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def absolute(text: str, repository: str) -> str:
    """Lead each link and picture of a text, code left out, to the repository if it leads nowhere else yet."""

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None:
            return found[0]
        if not target.startswith(("https:", "http:", "mailto:", "#")):
            target = f"{repository}/{'raw' if found['picture'] else 'blob'}/main/{target}"
        inner = absolute(found["text"], repository)  # a picture that is a link
        return f"{found['picture']}[{inner}]({target})"

    return _PARTS.sub(replaced, text)


class Readme(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling, with the table `[project]`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, metadata["urls"]["Repository"]),
        }
