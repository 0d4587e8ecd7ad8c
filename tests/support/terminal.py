"""A real terminal of a given size, in tmux, with a command in it; tests skip with a sentence where there is no tmux."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import pytest
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

TMUX: Final = shutil.which("tmux")
NEEDS_TMUX: Final = pytest.mark.skipif(
    TMUX is None, reason="no tmux on this machine, so there is no terminal to look at"
)
_ENDED: Final = "ended with "


class Terminal:
    """A window with a command; its socket is in a folder of the test's own."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        *,
        columns: int,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start the command in a terminal of that size; the exit code is shown when it ends."""
        self._socket = str(folder / f"tmux-{columns}-{os.urandom(3).hex()}")
        # Programs believe COLUMNS and LINES more than the terminal; workers of pytest-xdist have them.
        given = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
        shell = f"trap : INT; {shlex.join(command)}; echo {_ENDED}$?; sleep 600"
        self._run(
            *("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), "sh", "-c", shell),
            env={name: value for name, value in given.items() if name not in {"COLUMNS", "LINES"}},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with suppress(subprocess.CalledProcessError):  # it has ended by itself
            self._run("kill-server")

    def _run(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        assert TMUX is not None
        done = subprocess.run(  # noqa: S603 (tmux, with our own command)
            [TMUX, "-u", "-S", self._socket, *words], check=True, capture_output=True, text=True, env=env
        )
        return done.stdout

    def text(self, *, colours: bool = False) -> str:
        """What is on the screen now, and what has scrolled out of it."""
        return self._run("capture-pane", "-p", "-S", "-500", *(("-e",) if colours else ()))

    def press(self, key: str) -> None:
        """Press a key, as tmux names it: q, C-c, Enter."""
        self._run("send-keys", key)

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size."""
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    def wait_for(self, words: str) -> str:
        """The screen, once these words stand there."""
        try:
            wait_until(lambda: words in self.text(), f"the terminal shows {words!r}")
        except pytest.fail.Exception:
            pytest.fail(f"{words!r} is not on the screen:\n{self.text()}")
        return self.text()

    def exit_code(self) -> int:
        """The exit code of the command, once it has ended."""
        return int(self.wait_for(_ENDED).rpartition(_ENDED)[2].split()[0])
