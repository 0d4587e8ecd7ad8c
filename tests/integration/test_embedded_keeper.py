"""A process that only keeps an embedded server running: others use it, and leave its restarts to that process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.embedded_folder import eventually, is_free, no_server_runs

from headgate.adapters.embedded import VALKEY, EmbeddedServer, embedded_servers
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEPER = """
import sys
from pathlib import Path
from headgate.adapters.embedded import VALKEY, EmbeddedServer, keep_running
keep_running([EmbeddedServer(Path(sys.argv[1]), VALKEY)], lambda: print("kept", flush=True))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that does not exist yet, with a short path for the socket in it."""
    with tempfile.TemporaryDirectory(prefix="headgate-") as above:
        yield Path(above) / "counters"


@contextmanager
def kept(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps the server of a folder running."""
    with subprocess.Popen([sys.executable, "-c", KEEPER, str(folder)], stdout=subprocess.PIPE) as keeper:  # noqa: S603 (ours)
        try:
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == b"kept\n"
            yield keeper
        finally:
            keeper.kill()


def _server_of(keeper: subprocess.Popen[bytes]) -> int | None:
    """The server that is a child of one of the keeper's threads; None while there is none."""
    for task in Path(f"/proc/{keeper.pid}/task").glob("*/children"):
        for child in task.read_text(encoding="ascii").split():
            if b"valkey-server" in Path(f"/proc/{child}/cmdline").read_bytes().partition(b"\0")[0]:
                return int(child)
    return None


def test_others_leave_restarts_to_the_keeper(folder: Path) -> None:
    """A server that is killed is started again by its keeper, also if another process needs it first."""
    with kept(folder) as keeper:
        user = EmbeddedServer(folder, VALKEY)
        user.start()
        first = _server_of(keeper)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: not Path(f"/proc/{first}/cmdline").exists() or _server_of(keeper) != first)
        user.start()
        assert user.serving
        assert not user._is_owner
        assert _server_of(keeper) not in {None, first}
        user.stop()
        assert _server_of(keeper) is not None, "it is not the user's to stop"


def test_without_its_keeper_others_take_over_at_once(folder: Path) -> None:
    """A keeper that is killed takes its server with it, and the next process that needs one starts it."""
    with kept(folder) as keeper:
        user = EmbeddedServer(folder, VALKEY)
        user.start()
        keeper.kill()
        keeper.wait()
        assert eventually(lambda: not user.serving)
        user.start()
        assert user._is_owner
        user.stop()
    assert no_server_runs(folder)


def test_sigterm_ends_keeper_and_server_in_order(folder: Path) -> None:
    """Ctrl-c does not: those that use the server may still need it."""
    with kept(folder) as keeper:
        keeper.send_signal(signal.SIGINT)
        keeper.send_signal(signal.SIGTERM)
        assert keeper.wait(20) == 0
    assert no_server_runs(folder)
    assert all(is_free(folder / name) for name in ("owner.lock", "keeper.lock"))


def test_which_servers_are_embedded(tmp_path: Path) -> None:
    """They are in the data directory, unless an address names a folder; other addresses have none."""
    both = embedded_servers("embedded://", f"embedded://{tmp_path}/p", tmp_path)
    assert [each.folder for each in both] == [tmp_path / "valkey", tmp_path / "p"]
    assert embedded_servers("redis://h", None, tmp_path) == []
    assert embedded_servers("memory://", "postgresql://h/d", tmp_path) == []
    with pytest.raises(InvalidSettings, match="names a folder or nothing"):
        embedded_servers("embedded://?x=1", None, tmp_path)
