"""What is left of a gRPC connection after its end, and what a client is told when the process has too much to do."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

import pytest
from tests.integration.test_grpc_bounds import Served, attacked
from tests.integration.test_grpc_connection import FIELDS, Client

from headgate.core.headers import Reset
from headgate.edge.grpc import server
from headgate.edge.grpc.bounds import MAX_IN_FLIGHT
from headgate.edge.grpc.connection import Connection
from headgate.edge.grpc.methods import Delayed, methods
from headgate.errors import Overloaded
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import END_STREAM, PREFACE, Kind, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.edge.grpc.methods import Message
    from headgate.edge.grpc.server import Shared

PING = frames.frame(Kind.PING, 0, 0, bytes(8))


async def _hang(_message: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


def _answer(message: bytes) -> Message:
    answers: dict[bytes, Callable[[], Message]] = {b"hang": lambda: _hang(message), b"delay": lambda: Delayed(b"", 600)}
    return answers.get(message, lambda: message)()


def _calls(client: Client, number: int, message: bytes) -> bytes:
    return b"".join(client.call(1 + 2 * each, message) for each in range(number))


STATES: dict[str, Callable[[Client], bytes]] = {
    "greeting": lambda _client: PREFACE[:5],
    "idle": lambda client: PREFACE + _calls(client, 1, b"a"),
    "in flight": lambda client: PREFACE + _calls(client, 1, b"hang"),
    "waiting for others": lambda client: PREFACE + _calls(client, MAX_IN_FLIGHT + 9, b"hang"),
    "delayed": lambda client: PREFACE + _calls(client, 1, b"delay"),
    "waiting for room": lambda client: (
        PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}) + _calls(client, 1, b"a")
    ),
    "unfinished message": lambda client: PREFACE + client.headers(1) + frames.frame(Kind.DATA, 0, 1, bytes(9_000)),
    "unfinished headers": lambda _client: PREFACE + frames.frame(Kind.HEADERS, 0, 1, b"\x82"),
    "more than a turn": lambda client: PREFACE + _calls(client, 900, b"a"),
    "broken": lambda _client: PREFACE + frames.frame(Kind.PUSH_PROMISE, 0, 1),
}


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_kept_after_a_close(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector: no reference leads from a connection back to itself once it is closed."""
    made: list[weakref.ref[Connection]] = []

    class Seen(Connection):
        def __init__(self, shared: Shared) -> None:
            super().__init__(shared)
            made.append(weakref.ref(self))

    async def run(there: Served) -> None:
        client = await there.client(greet=False)
        client.send(STATES[state](client))
        await client.next(Kind.SETTINGS)
        if state not in {"greeting", "unfinished headers", "broken", "more than a turn"}:
            client.send(PING)
            await client.next(Kind.PING)
        client.writer.transport.abort()
        while made[0]() is not None:  # noqa: ASYNC110 (the end of an object has no event)
            await asyncio.sleep(0.01)

    monkeypatch.setattr(server, "Connection", Seen)
    gc.collect()
    gc.disable()
    try:
        attacked(run, {"/test/echo": _answer})
    finally:
        gc.enable()


@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize("denies", [True, False])
def test_overload_is_unavailable_or_over_limit(*, is_at_once: bool, denies: bool) -> None:
    """As the operator chooses; Envoy's failure mode decides about the first."""

    class Limits:
        reset = Reset.NEXT

        def decide_now(self, _asked: object) -> None:
            if is_at_once:
                raise Overloaded(retry_after=1.5)

        async def decided(self, _asked: object) -> None:
            raise Overloaded(retry_after=1.5)

    made = methods(Limits(), lambda: True, denies_on_overload=denies)  # type: ignore[arg-type] # as much as is needed
    path = next(path for path in made if path.endswith("ShouldRateLimit"))

    async def run(there: Served) -> None:
        client = await there.client()
        fields = [*FIELDS[:2], (":path", path), *FIELDS[3:]]
        client.send(client.call(1, b"\x0a\x03web\x12\x08\x0a\x06\x0a\x01a\x12\x01b", fields))
        if denies:
            answer = await client.answer()
            assert answer.startswith(b"\x08\x02\x12\x02\x08\x02")
            assert b"retry-after\x12\x012" in answer
        else:
            failed = await client.next(Kind.HEADERS)
            assert failed.flags & END_STREAM
            assert b"grpc-status\x0214" in failed.content

    attacked(run, made)
