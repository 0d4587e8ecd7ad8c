"""The fault proxy plays what it is told, to connections that are there and to new ones."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

import hiredis
import pytest
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

from headgate.adapters.redis import store_at
from headgate.core.decision import Hit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.errors import StoreError
from headgate.testing import ErrorLine, Fault, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOWHERE = 1  # a port where nothing listens
A_MOMENT = 0.05


class Client:
    """A plain socket that speaks Redis."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
        self._reader = hiredis.Reader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.socket.close()

    def send(self, *command: str | bytes) -> None:
        self.socket.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # its stub says one

    def answer(self) -> object:
        while (answer := self._reader.gets()) is False:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError
            self._reader.feed(data)
        return answer

    def ask(self, *command: str | bytes) -> object:
        self.send(*command)
        return self.answer()

    def hears_nothing(self) -> bool:
        self.socket.settimeout(A_MOMENT)
        try:
            self.answer()
        except TimeoutError:
            self.socket.settimeout(5)
            return True
        return False


@pytest.fixture
def proxy(valkey: Server) -> Iterator[FaultProxy]:
    with FaultProxy(path=valkey.socket) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    """A connection that was there before any fault."""
    with Client(proxy) as client:
        assert client.ask("SET", "k", "1") == b"OK"
        yield client


def test_it_passes_everything_on(proxy: FaultProxy, client: Client) -> None:
    """Without a fault, whatever is sent arrives, and connections and commands are counted."""
    blob = bytes(range(256)) * 10_000
    client.ask("SET", "blob", blob)
    with Client(proxy) as other:
        assert other.ask("GET", "blob") == blob
        for _ in range(500):
            other.send("INCR", "n")
        assert [other.answer() for _ in range(500)] == list(range(1, 501))
    assert (proxy.connections, proxy.commands) == (2, 503)


def test_it_stands_before_a_port_too(tmp_path: Path) -> None:
    """The server may be at a host and port."""
    port = free_port()
    server = Server(tmp_path / "server", port)
    with FaultProxy("127.0.0.1", port) as proxy, Client(proxy) as client:
        assert client.ask("PING") == b"PONG"
        server.kill()
        with pytest.raises(EOFError):
            client.answer()
    with FaultProxy("127.0.0.1", port) as proxy, Client(proxy) as client, pytest.raises(ConnectionResetError):
        client.ask("PING")


def test_silent(proxy: FaultProxy, client: Client, valkey: Server) -> None:
    """While silent, connections are accepted and nothing is answered or executed; afterwards they are broken."""
    proxy.play(Fault.SILENT)
    with Client(proxy) as late:
        for each in (client, late):
            each.send("INCR", "k")
            assert each.hears_nothing()
        assert valkey.ask("GET", "k") == b"1"
        proxy.heal()
        for each in (client, late):
            with pytest.raises(ConnectionResetError):
                each.answer()
    with Client(proxy) as fresh:
        assert fresh.ask("GET", "k") == b"1"


def test_silent_covers_an_answer_on_its_way(proxy: FaultProxy, client: Client, valkey: Server) -> None:
    """What was asked before the silence is not answered in it."""
    valkey.freeze()
    client.send("INCR", "k")
    wait_until(lambda: proxy.commands == 2, "the command is on its way")
    proxy.play(Fault.SILENT)
    valkey.thaw()
    wait_until(lambda: valkey.ask("GET", "k") == b"2", "the server did it")
    assert client.hears_nothing()


def test_stalled(proxy: FaultProxy, client: Client) -> None:
    """While stalled, nothing passes; afterwards everything goes on where it was."""
    proxy.play(Fault.STALLED)
    with Client(proxy) as late:
        for each in (client, late):
            each.send("INCR", "k")
            assert each.hears_nothing()
        proxy.heal()
        assert {client.answer(), late.answer()} == {2, 3}


def test_refused(proxy: FaultProxy, client: Client) -> None:
    """While refused, nothing listens and open connections are reset; afterwards the same port listens again."""
    proxy.play(Fault.REFUSED)
    with pytest.raises(ConnectionResetError):
        client.answer()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            Client(proxy)
    proxy.heal()
    with Client(proxy) as fresh:
        assert fresh.ask("GET", "k") == b"1"


def test_slow(proxy: FaultProxy, client: Client) -> None:
    """Every answer comes so much later."""
    proxy.play(Fault.SLOW, seconds=A_MOMENT)
    with Client(proxy) as late:
        for each in (client, late):
            started = time.monotonic()
            assert each.ask("GET", "k") == b"1"
            assert time.monotonic() - started >= A_MOMENT


def test_slow_keeps_the_order(proxy: FaultProxy, client: Client, valkey: Server) -> None:
    """An answer that is not slow any more does not overtake those that were, nor does an error."""
    proxy.play(Fault.SLOW, seconds=2 * A_MOMENT)
    client.send("SET", "k", "slow")
    wait_until(lambda: valkey.ask("GET", "k") == b"slow", "the server did it")
    proxy.play(Fault.SLOW, seconds=A_MOMENT / 10)
    client.send("INCR", "n")
    wait_until(lambda: valkey.ask("GET", "n") == b"1", "the server did it")
    proxy.heal()
    client.send("INCR", "n")
    wait_until(lambda: valkey.ask("GET", "n") == b"2", "the server did it")
    proxy.says("ERR no")
    client.send("INCR", "n")
    assert [str(client.answer()) for _ in range(4)] == ["b'OK'", "1", "2", "ERR no"]


def test_cut(proxy: FaultProxy, client: Client, valkey: Server) -> None:
    """A command is executed, but its answer breaks off in the middle and the connection ends."""
    proxy.play(Fault.CUT)
    client.send("INCR", "k")
    assert client.socket.recv(100) == b":2"
    assert client.socket.recv(100) == b""
    assert valkey.ask("GET", "k") == b"2"


def test_cut_never_falls_between_two_answers(proxy: FaultProxy, client: Client) -> None:
    """However many answers come at once, one of them is broken."""
    proxy.play(Fault.CUT)
    client.socket.sendall(hiredis.pack_command(("PING",)) * 2)
    received = b""
    while data := client.socket.recv(100):
        received += data
    assert received
    assert not received.endswith(b"\n")


def test_reset(proxy: FaultProxy, client: Client, valkey: Server) -> None:
    """A connection lives until a command comes in, which is not executed."""
    proxy.play(Fault.RESET)
    with Client(proxy) as late:
        for each in (client, late):
            with pytest.raises(ConnectionResetError):
                each.ask("INCR", "k")
    assert valkey.ask("GET", "k") == b"1"


@pytest.mark.parametrize("line", ErrorLine, ids=lambda line: line.name)
def test_says(proxy: FaultProxy, client: Client, valkey: Server, line: ErrorLine) -> None:
    """Every command gets exactly one error, wherever the bytes are cut, and is not executed."""
    proxy.says(line)
    commands = hiredis.pack_command(("SET", "k", b"\r\n*1\r\n$4\r\nPING\r\n")) * 10  # type: ignore[arg-type] # its stub says one
    for byte in commands[:-1]:
        client.socket.send(bytes([byte]))
    assert [str(client.answer()) for _ in range(9)] == [line.value] * 9
    assert client.hears_nothing()
    client.socket.send(commands[-1:])
    assert isinstance(client.answer(), hiredis.ReplyError)
    assert valkey.ask("GET", "k") == b"1"
    proxy.heal()
    assert client.ask("GET", "k") == b"1"


def test_says_waits_for_earlier_answers(proxy: FaultProxy, client: Client, valkey: Server) -> None:
    """A command that was passed on before gets its own answer first."""
    valkey.freeze()
    client.send("GET", "k")
    wait_until(lambda: proxy.commands == 2, "the command is on its way")
    proxy.says(ErrorLine.OOM)
    client.send("GET", "k")
    assert client.hears_nothing()
    valkey.thaw()
    assert client.answer() == b"1"
    assert str(client.answer()) == ErrorLine.OOM


def test_a_command_that_is_cut_in_two_by_a_change_is_whole(proxy: FaultProxy, client: Client) -> None:
    """A fault that comes or goes in the middle of a command does not spoil the connection."""
    command = hiredis.pack_command(("INCR", "k"))  # type: ignore[arg-type] # its stub says one
    client.socket.sendall(command[:9])
    proxy.says("ERR no")
    client.socket.sendall(command[9:] + command[:12])
    assert str(client.answer()) == "ERR no"
    proxy.heal()
    client.socket.sendall(command[12:])
    assert client.answer() == 2


def test_duplicate(proxy: FaultProxy, client: Client) -> None:
    """Every answer comes twice."""
    proxy.play(Fault.DUPLICATE)
    assert [client.ask("INCR", "k"), client.answer()] == [2, 2]


def test_garbage(proxy: FaultProxy, client: Client, valkey: Server) -> None:
    """What is answered is not the Redis protocol."""
    proxy.play(Fault.GARBAGE)
    with pytest.raises(hiredis.ProtocolError):
        client.ask("INCR", "k")
    assert valkey.ask("GET", "k") == b"1"


@pytest.mark.parametrize("sent", [b"*1\r\n$-7\r\n", b"*1\r\n:4\r\n", b"*1\r\n$99999999\r\n", b"*many\r\n"])
def test_what_is_not_a_command_is_reset(proxy: FaultProxy, client: Client, sent: bytes) -> None:
    """A client that does not speak Redis, or wants to send too much, is not passed on."""
    client.socket.sendall(sent)
    with pytest.raises(ConnectionResetError):
        client.answer()
    assert proxy.commands == 1


def test_a_server_that_is_none_is_reset() -> None:
    """A server that does not speak Redis is not passed on either."""
    with FaultProxy(port=NOWHERE) as http, FaultProxy(port=http.port) as proxy, Client(proxy) as client:
        http.play(Fault.GARBAGE)
        with pytest.raises(ConnectionResetError):
            client.ask("PING")


def test_some_faults_need_no_server() -> None:
    """What is answered by the proxy itself is answered without a server."""
    with FaultProxy(port=NOWHERE) as proxy, Client(proxy) as client:
        proxy.says(ErrorLine.NOAUTH)
        client.socket.sendall(b"\r\nPING\r\n*0\r\n")
        assert str(client.answer()) == ErrorLine.NOAUTH
        assert proxy.commands == 1


@pytest.mark.parametrize("fault", Fault)
def test_it_ends_by_itself(valkey: Server, fault: Fault) -> None:
    """Whatever is played and whichever clients are still connected, the end leaves no thread and no socket behind."""
    threads = threading.active_count()
    with FaultProxy(path=valkey.socket) as proxy, Client(proxy) as client:
        client.ask("PING")
        proxy.play(fault, seconds=60)
        if fault is not Fault.REFUSED:
            client.send("PING")
            Client(proxy).socket.close()
        proxy.__exit__()
        with pytest.raises(ConnectionRefusedError):
            Client(proxy)
        proxy.__enter__()
    assert threading.active_count() == threads
    gc.collect()


def test_a_limiters_store_behind_it(proxy: FaultProxy) -> None:
    """A store that goes through the proxy sees the fault as a transient error, and works again afterwards."""
    meter = Meter(Rate(5, 60_000_000), Algorithm.FIXED_WINDOW)

    async def scenario() -> None:
        store = store_at(f"{proxy.url}?deadline_ms=5000")
        await store.connect()
        proxy.says(ErrorLine.LOADING)
        with pytest.raises(StoreError) as caught:
            await store.take((Hit("k2", meter, 1),))
        assert caught.value.transient
        proxy.heal()
        (decision,) = await store.take((Hit("k2", meter, 1),))
        assert decision.remaining == 4
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("line", "settings", "command"),
    [
        (ErrorLine.NOAUTH, [("CONFIG", "SET", "requirepass", "secret")], ("GET", "k")),
        (ErrorLine.OOM, [("CONFIG", "SET", "maxmemory", "1")], ("SET", "k", "1")),
        (ErrorLine.READONLY, [("REPLICAOF", "127.0.0.1", "1")], ("SET", "k", "1")),
        (
            ErrorLine.MASTERDOWN,
            [("CONFIG", "SET", "replica-serve-stale-data", "no"), ("REPLICAOF", "127.0.0.1", "1")],
            ("GET", "k"),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_lines_are_what_a_server_says(
    tmp_path: Path, line: ErrorLine, settings: list[tuple[str, ...]], command: tuple[str, ...]
) -> None:
    """The errors that the kit knows by name are those of a real server, word for word."""
    server = Server(tmp_path / "server", free_port())
    for setting in settings:
        server.ask(*setting)
    with pytest.raises(hiredis.ReplyError) as caught:
        server.ask(*command)
    server.kill()
    assert str(caught.value) == line
