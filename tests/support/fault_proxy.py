"""A fault proxy in a process of its own, so that a busy test does not slow it down.

As a program it stands before the Redis server at the port, or unix socket, in its argument, prints its own port, plays
each fault that comes as a line of JSON, says so, and ends with its input.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Self

from headgate.testing import Fault, FaultProxy


class ProxyProcess:
    """The other end of the program. Use it in ``with``."""

    def __init__(self, server: int | Path) -> None:
        """Stand before the server at a port, or at a unix socket."""
        self._server = str(server)

    def __enter__(self) -> Self:
        """Start it."""
        command = [sys.executable, "-m", "tests.support.fault_proxy", self._server]
        self._process = subprocess.Popen(  # noqa: S603 (our own)
            command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = f"redis://127.0.0.1:{int(self._line())}"
        return self

    def __exit__(self, *_exc: object) -> None:
        """End it."""
        self._process.communicate(timeout=20)

    def play(self, fault: Fault, **how: float) -> None:
        """As `FaultProxy.play`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"fault": fault} | how) + "\n")
        self._process.stdin.flush()
        assert self._line() == "played\n"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def main() -> None:
    """Stand between until there is no more input."""
    server = sys.argv[1]
    with FaultProxy(port=int(server)) if server.isdigit() else FaultProxy(path=server) as proxy:
        print(proxy.port, flush=True)  # noqa: T201 (its answer)
        for line in sys.stdin:
            how = json.loads(line)
            proxy.play(Fault(how.pop("fault")), **how)
            print("played", flush=True)  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
