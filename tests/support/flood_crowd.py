"""A crowd of connections that ask a decision service about one caller as fast as it answers, as a program.

Its orders are JSON in its first argument; it prints what it was answered as JSON. It stops by itself. With `users` it
is polite instead: so many users, each on a connection of its own, each a few times a second.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from functools import partial
from typing import Final, NamedTuple

import uvloop
from hpack import Encoder

from headgate.edge.grpc.methods import RATE_LIMITS
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import ACK, END_HEADERS, END_STREAM, PREFACE, Kind, Setting

_CONNECT_AT_ONCE: Final = 100
_GRACE_SECONDS: Final = 20.0
"""For the answers that are still owed at the end."""
_FIELDS: Final = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", f"/{RATE_LIMITS}/ShouldRateLimit"),
    (":authority", "headgate"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


class Orders(NamedTuple):
    """What the crowd shall do."""

    kind: str
    """http or rls"""
    port: int
    connections: int = 0
    seconds: float = 10.0
    each: int | None = None
    """So many requests on each connection, and no more; None: until the time is over."""
    user: str = "flooder"
    users: int = 0
    """Polite users in place of a crowd."""
    per_second: float = 10.0


class Client(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self, orders: Orders, user: str, outcomes: Counter[str]) -> None:
        """`outcomes` counts what was answered."""
        self.orders = orders
        self.user = user
        self.outcomes = outcomes
        self.remaining: list[int] = []
        self.waits: list[float] = []
        self.left = orders.each
        self.is_over = False
        self.idle = asyncio.Event()
        self.closed = asyncio.Event()
        self._asked_at = 0.0
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment] # TCP
        self.idle.set()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.idle.is_set():
            self.outcomes["cut off"] += 1
        self.idle.set()
        self.closed.set()

    def ask(self) -> None:
        """Send one request."""
        self.idle.clear()
        self._asked_at = time.perf_counter()
        self.transport.write(self.request())

    def answered(self, outcome: str, remaining: int | None = None) -> None:
        """An answer came."""
        self.outcomes[outcome] += 1
        self.waits.append(time.perf_counter() - self._asked_at)
        if remaining is not None:
            self.remaining.append(remaining)
        if self.orders.users or self.is_over or self.left == 0 or self.transport.is_closing():
            self.idle.set()
            return
        if self.left is not None:
            self.left -= 1
        self.ask()

    def request(self) -> bytes:
        raise NotImplementedError


class HttpClient(Client):
    """Asks `/v1/check`."""

    def request(self) -> bytes:
        body = json.dumps({"user": self.user}).encode()
        return b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(self._received) < end + 4 + length:
            return
        body = json.loads(self._received[end + 4 : end + 4 + length])
        del self._received[: end + 4 + length]
        status = int(head.split(b" ", 2)[1])
        outcome = f"{status} {body.get('source', body.get('error', ''))}".strip()
        self.answered(outcome, body.get("remaining") if status == 200 else None)


class RlsClient(Client):
    """Asks Envoy's question."""

    def __init__(self, orders: Orders, user: str, outcomes: Counter[str]) -> None:
        super().__init__(orders, user, outcomes)
        encoder = Encoder()
        self._blocks = encoder.encode(_FIELDS), encoder.encode(_FIELDS)
        self._stream = -1
        self._message = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: 2**20}))

    def request(self) -> bytes:
        self._stream += 2
        self._message = b""
        block = self._blocks[self._stream > 1]
        entry = _field(1, _field(1, b"user") + _field(2, self.user.encode()))
        message = _field(1, b"flood") + _field(2, entry)
        framed = b"\x00" + len(message).to_bytes(4, "big") + message
        head = frames.frame(Kind.HEADERS, END_HEADERS, self._stream, block)
        return head + frames.frame(Kind.DATA, END_STREAM, self._stream, framed)

    def data_received(self, data: bytes) -> None:
        self._received += data
        out = []
        credit = 0
        for kind, flags, _stream, content in frames.read_frames(self._received):
            if kind == Kind.DATA:
                self._message += content
                credit += len(content)
            elif kind == Kind.HEADERS and flags & END_STREAM:
                admitted = self._message[5:7] == b"\x08\x01"
                self.answered(("OK" if admitted else "OVER_LIMIT") if self._message else "UNAVAILABLE")
            elif kind == Kind.RST_STREAM:
                self.answered("reset")
            elif kind in {Kind.PING, Kind.SETTINGS} and not flags & ACK:
                out.append(frames.frame(Kind(kind), ACK, 0, content if kind == Kind.PING else b""))
        if credit:
            out.append(frames.window_update(0, credit))
        if out and not self.transport.is_closing():
            self.transport.write(b"".join(out))


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


_KINDS: Final = {"http": HttpClient, "rls": RlsClient}


def _same(client: Client) -> Client:
    return client


async def _connected(orders: Orders, users: list[str], outcomes: Counter[str]) -> list[Client]:
    loop = asyncio.get_running_loop()
    clients = [_KINDS[orders.kind](orders, user, outcomes) for user in users]
    made = []
    for start in range(0, len(clients), _CONNECT_AT_ONCE):
        some = clients[start : start + _CONNECT_AT_ONCE]
        connecting = [loop.create_connection(partial(_same, each), "127.0.0.1", orders.port) for each in some]
        results = await asyncio.gather(*connecting, return_exceptions=True)
        for each, result in zip(some, results, strict=True):
            if isinstance(result, BaseException):
                outcomes["not connected"] += 1
            else:
                made.append(each)
    return made


async def _crowd(orders: Orders) -> dict[str, object]:
    outcomes: Counter[str] = Counter()
    clients = await _connected(orders, [orders.user] * orders.connections, outcomes)
    for client in clients:
        if client.left is not None:
            client.left -= 1
        client.ask()
    if orders.each is None:
        await asyncio.sleep(orders.seconds)
        for client in clients:
            client.is_over = True
    waiting = asyncio.gather(*[client.idle.wait() for client in clients])
    try:
        await asyncio.wait_for(waiting, orders.seconds + _GRACE_SECONDS)
    except TimeoutError:
        outcomes["unanswered"] += sum(not client.idle.is_set() for client in clients)
    return {"outcomes": outcomes, "longest_wait": max((max(client.waits, default=0) for client in clients), default=0)}


async def _polite(orders: Orders) -> dict[str, object]:
    """Users who ask a few times a second, and remember what was left each time."""
    outcomes: Counter[str] = Counter()
    names = [f"{orders.user}-{number}" for number in range(orders.users)]
    clients = await _connected(orders, names, outcomes)
    ends = time.monotonic() + orders.seconds

    async def live(client: Client) -> None:
        while time.monotonic() < ends and not client.closed.is_set():
            client.ask()
            await client.idle.wait()
            await asyncio.sleep(1 / orders.per_second)

    await asyncio.gather(*[live(client) for client in clients])
    waits = sorted(wait for client in clients for wait in client.waits)
    return {
        "outcomes": outcomes,
        "remaining": {client.user: client.remaining for client in clients},
        "longest_wait": waits[-1] if waits else 0,
        "p99_wait": waits[len(waits) * 99 // 100] if waits else 0,
    }


def main() -> None:
    """Do as ordered, and tell."""
    orders = Orders(**json.loads(sys.argv[1]))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    seen = uvloop.run(_polite(orders) if orders.users else _crowd(orders))
    print(json.dumps(seen))  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
