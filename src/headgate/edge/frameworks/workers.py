"""How many processes serve the application, as far as it can be known from inside one of them.

Each process has a memory store of its own, so several of them multiply every limit. Servers do
not tell their workers how many there are, but most are started with a command that says it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SERVERS: Final = re.compile(r"(?:^|[/\\])(?:uvicorn|gunicorn|granian|hypercorn|fastapi)(?:[/\\]__main__\.py|\.exe)?$")
_WORKERS: Final = re.compile(r"(?:--workers=?|-w)([0-9]{1,4})")
_NAMES: Final = frozenset({"--workers", "-w"})
ONE_EACH: Final = (
    "memory:// counts in each process for itself, and there are several, so every limit would be multiplied; "
    "give all of them one store, such as redis://host:6379"
)


def is_one_of_several(environ: Mapping[str, object]) -> bool:
    """Whether a WSGI server says that other processes answer too; test clients and Python's own server always do."""
    server = environ.get("SERVER_SOFTWARE")
    return bool(environ.get("wsgi.multiprocess")) and isinstance(server, str) and not server.startswith("WSGIServer")


def workers_of(command: Sequence[str]) -> int:
    """How many workers a server was told to start by its command; 1 if that cannot be seen."""
    if not command or not _SERVERS.search(command[0]):
        return 1
    told = 1
    for place, word in enumerate(command[1:], 1):
        found = _WORKERS.fullmatch(
            f"--workers={command[place + 1]}" if word in _NAMES and place + 1 < len(command) else word
        )
        if found is not None:
            told = int(found[1])
    return told
