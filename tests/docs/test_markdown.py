"""Pages are Markdown that is shown as it is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_CODE: Final = re.compile(r"^ *```.*?^ *```$|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)", re.MULTILINE | re.DOTALL)


def test_bold_text_ends_where_it_begins(page: Path) -> None:
    """Every paragraph has an even number of `**`; one that lost a star, or has a space in it, is shown as stars."""
    paragraphs = re.split(r"\n\s*\n", _CODE.sub("", page.read_text(encoding="utf-8")))
    broken = [text for text in paragraphs if text.count("**") % 2 or re.search(r"^\* \*\S", text, re.MULTILINE)]
    assert broken == []
