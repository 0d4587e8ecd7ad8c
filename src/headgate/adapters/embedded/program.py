"""What is to be known of a server program to run it as a child."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from signal import Signals

    from headgate.errors import DatabaseError, StoreError


@dataclass(frozen=True, slots=True)
class Program:
    """A kind of server, as `EmbeddedServer` runs it."""

    name: str
    keeps: str
    """What is in its folder, in a word."""
    socket: str
    """The file in its folder that it listens on."""
    end: Signals
    """What ends it in order."""
    instead: str
    """What to do where it does not run at all."""
    error: type[StoreError | DatabaseError]
    command: Callable[[Path], list[str]]
    """Make what the server needs in a folder, and return the command that runs it there."""
    answers: Callable[[Path], bool]
    """Whether a server in that folder does its work."""
    end_orphan: Callable[[Path], None]
    """Ask the server in a folder to end, if there is one."""


# Linux ends the server when the thread that started it is gone, however its process died. The wish has to
# be made in the child, and after a change of user, which forgets it. Between fork and exec no Python may run in a
# program with threads, so the child is an interpreter that makes it and then becomes the server. Its parent may be
# gone by then.
_UNTIL_THE_PARENT_DIES: Final = """\
import ctypes, os, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(sys.argv[2]))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[3], sys.argv[3:])
"""


def until_the_parent_dies(command: Sequence[str], end: Signals) -> list[str]:
    """This command, for a child that gets the signal `end` when the thread that starts it ends, if that can be had."""
    if sys.platform != "linux":
        return list(command)  # what outlives its parent there is ended by the next one to start
    return [sys.executable, "-I", "-S", "-c", _UNTIL_THE_PARENT_DIES, str(os.getpid()), str(int(end)), *command]
