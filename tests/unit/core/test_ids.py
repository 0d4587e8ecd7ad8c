from __future__ import annotations

import subprocess
import sys

from headgate.core.ids import new_id

_FORKED = """
import os
from headgate.core.ids import new_id
new_id()  # so that others are drawn already
if os.fork() == 0:
    print(new_id(), flush=True)
    os._exit(0)
os.wait()
print(new_id())
"""


def test_no_two_ids_are_the_same() -> None:
    """Ids are short plain texts, and every one is new."""
    ids = {new_id() for _ in range(10_000)}
    assert len(ids) == 10_000
    assert all(len(name) == 32 and name.isalnum() and name.isascii() for name in ids)


def test_a_fork_has_ids_of_its_own() -> None:
    """A process that was forked does not use the names that its parent was about to use."""
    told = subprocess.run([sys.executable, "-c", _FORKED], check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    first, second = told.stdout.split()
    assert first != second
