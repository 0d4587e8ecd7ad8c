"""SQL from its files.

``queries/users.sql`` holds the statements ``users.…``, each under a line of its own:

    -- users.get(id): the user, or no row
    SELECT … WHERE id = $1;
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER: Final = re.compile(r"^-- ([a-z_]+\.[a-z_]+)\((.*?)\):.*$", re.MULTILINE)


@cache
def statements() -> Mapping[str, str]:
    """All statements by name."""
    found: dict[str, str] = {}
    for file in sorted(files(__package__).joinpath("sql", "queries").iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".sql"):
            continue
        _, *parts = _HEADER.split(file.read_text(encoding="utf-8"))
        for name, _arguments, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found[name] = body.strip()
    return found
