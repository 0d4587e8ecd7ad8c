"""A way to Redis with 2 ms of latency and a stall of 25 ms for one reply in a hundred, as a program.

Its argument is the server's port; it prints its own, and ends with its input.
"""

from __future__ import annotations

import sys

from headgate.testing import Fault, FaultProxy


def main() -> None:
    """Stand between until there is no more input."""
    with FaultProxy(port=int(sys.argv[1])) as proxy:
        proxy.play(Fault.SLOW, seconds=0.002, stall=0.025, one_in=100)
        print(proxy.port, flush=True)  # noqa: T201 (its answer)
        sys.stdin.read()


if __name__ == "__main__":
    main()
