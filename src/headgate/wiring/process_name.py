"""What a process is called where all of them are listed."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

from headgate.controlplane.processes import ProcessName


def this_process(role: str, region: str | None) -> ProcessName:
    """A new name: two lives of one process id are two processes."""
    return ProcessName(uuid4(), socket.gethostname(), os.getpid(), role, region)
