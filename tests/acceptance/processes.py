"""The processes that a command has started, as the system lists them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children(parent: int, word: str) -> list[int]:
    """The children of a process with a word in their command, however long that is (ps would cut it)."""
    listed = [place.read_text(encoding="ascii").split() for place in Path(f"/proc/{parent}/task").glob("*/children")]
    return [int(pid) for of_thread in listed for pid in of_thread if word in _command(int(pid))]


def _command(pid: int) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
