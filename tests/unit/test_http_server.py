from __future__ import annotations

import asyncio
import socket

import pytest
from tests.support.addresses import free_address

from headgate import Limiter
from headgate.edge import listening
from headgate.edge.http.application import Bounds
from headgate.edge.http.server import ShutdownTimes, Transport, serve, serving_http
from headgate.edge.http.service import DecisionService
from headgate.edge.listening import Address, ListenOptions, reserved_address
from headgate.errors import HeadgateError


def test_a_name_and_any_port_become_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's name is resolved, and port 0 becomes one that is free."""
    known = {"here.test": "127.0.0.1"}  # a bare machine may not even know `localhost`
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *args, **more: resolve(known[host], *args, **more))
    address = free_address("here.test", 0)
    assert address.host == "127.0.0.1"
    assert address.port > 0


def test_a_taken_port_is_noticed_even_where_it_could_be_shared() -> None:
    """A port is taken if a process listens there, also with SO_REUSEPORT, which would let two services share it."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(HeadgateError, match="another program uses it"):
            free_address("127.0.0.1", other.getsockname()[1])


def test_a_port_is_kept_until_a_server_listens() -> None:
    """From the moment a port is chosen the system gives it to no other process, and our servers may share it."""

    def taken_by(*options: int) -> None:
        with socket.socket() as other:
            for option in options:
                other.setsockopt(socket.SOL_SOCKET, option, 1)
            other.bind(("127.0.0.1", address.port))
            other.listen()

    async def serving() -> None:
        service = DecisionService(Limiter.open(rules=[]))
        async with (
            serving_http(service, address, 1, Transport()),
            serving_http(service, address, 1, Transport()),
        ):
            _, writer = await asyncio.open_connection(*address[:2])
            writer.close()

    with reserved_address("127.0.0.1", 0) as address:
        with pytest.raises(OSError, match="in use"):
            taken_by()
        with pytest.raises(OSError, match="in use"):
            taken_by(socket.SO_REUSEADDR)
        with pytest.raises(HeadgateError, match="another program uses it"):
            free_address("127.0.0.1", address.port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address[:2])
        asyncio.run(serving())
    taken_by(socket.SO_REUSEADDR)


def test_a_restart_does_not_wait_for_connections_that_have_ended() -> None:
    """The server closed them first, so the system remembers them for a minute; the next start gets the port at once."""

    async def serving(address: Address) -> None:
        async with serving_http(DecisionService(Limiter.open(rules=[])), address, 1, Transport()):
            reader, writer = await asyncio.open_connection(*address[:2])
            writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
            await writer.wait_closed()

    port = 0
    for _ in range(3):
        with reserved_address("127.0.0.1", port) as address:
            port = address.port
            asyncio.run(serving(address))


@pytest.mark.parametrize("is_filter_allowed", [True, False])
def test_a_socket_serves_again_after_a_process_that_ended_in_order(
    monkeypatch: pytest.MonkeyPatch, *, is_filter_allowed: bool
) -> None:
    """A supervisor keeps the socket; what told the kernel to ignore new clients ends with the process that said so."""
    if not is_filter_allowed:
        monkeypatch.setattr(listening, "_WITHOUT_SYN", b"")  # which the kernel refuses

    async def serving(address: Address) -> None:
        async with serving_http(DecisionService(Limiter.open(rules=[])), address, 1, Transport()):
            reader, writer = await asyncio.wait_for(asyncio.open_connection(*address[:2]), 10)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()

    with reserved_address("127.0.0.1", 0) as address:
        assert address.reserved is not None
        with address.reserved.dup() as kept:
            for _ in range(2):
                asyncio.run(serving(address._replace(reserved=kept.dup())))


def test_a_server_that_cannot_start_says_why_in_a_sentence() -> None:
    """Where the port is taken after all, nothing is announced."""
    announced: list[bool] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = Address(*other.getsockname())
        service = DecisionService(Limiter.open(rules=[]))
        with pytest.raises(HeadgateError, match=r"^cannot listen on '127.0.0.1', port \d+: another program uses it"):
            asyncio.run(serve(service, address, ShutdownTimes(0, 1), lambda: announced.append(True)))
    assert announced == []


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("203.0.113.1", "no such address"),
        ("no such host", "cannot listen"),
        ("x" * 300, "cannot listen"),
        ("a..b", "cannot listen"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_named(host: str, reason: str) -> None:
    """A host that is not this machine, or none at all, raises a sentence, with the option that changes it."""
    with pytest.raises(HeadgateError, match=reason):
        free_address(host, 0)
    options = ListenOptions("--host", "--port")
    with pytest.raises(HeadgateError, match=r"\(--host\)$"), reserved_address(host, 0, options=options):
        pass


def test_a_taken_port_names_the_option() -> None:
    """The operator is told what to write, not only that something is wrong."""
    options = ListenOptions("--host", "--port or HEADGATE_PORT")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(HeadgateError, match=r"choose another port \(--port or HEADGATE_PORT\)$"),
            reserved_address("127.0.0.1", port, options=options),
        ):
            pass


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (Address("127.0.0.1", 80), "http://127.0.0.1:80"),
        (Address("0.0.0.0", 80), "http://127.0.0.1:80"),  # noqa: S104 (not bound)
        (Address("::", 80), "http://[::1]:80"),
        (Address("2001:db8::1", 80), "http://[2001:db8::1]:80"),
    ],
)
def test_an_address_is_shown_as_it_can_be_opened(address: Address, url: str) -> None:
    """The URL that is printed works from this machine, whatever is listened on."""
    assert address.url == url


def test_timeouts_near_zero_keep_no_core_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timeouts are checked at most a hundred times a second, however short they are."""
    pauses: list[float] = []
    pause = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await pause(0)

    async def serving() -> None:
        service = DecisionService(Limiter.open(rules=[]))
        async with serving_http(service, free_address("127.0.0.1", 0), 1, Transport(Bounds(body_seconds=0))):
            monkeypatch.setattr(asyncio, "sleep", noted)
            while not pauses:
                await pause(0)

    asyncio.run(serving())
    assert min(pauses) == 0.01
