"""Sentinels that are stale, silent or out of their minds. What sound ones do is in the contract and the outages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeAlias

import hiredis
import pytest
from tests.support.valkey import Server, free_port

from headgate import Limiter
from headgate.adapters.redis import StoreAddress
from headgate.adapters.redis.sentinel import Sentinel
from headgate.adapters.redis.timeouts import Timeouts
from headgate.core.decision import Source
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.sentinel import SentinelSetup

Answers: TypeAlias = dict[bytes, bytes | None]
"""What is said to a command, by its first word; nothing at all is silence."""

_UNKNOWN = b"-ERR unknown command\r\n"
PRIMARY = b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
REPLICA = b"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$7\r\nconnect\r\n:-1\r\n"


def _bulk(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return b"$%d\r\n%s\r\n" % (len(raw), raw)


def _at(port: int | str) -> Answers:
    """A sentinel's answers when it takes a server on loopback for the primary."""
    return {b"SENTINEL": b"*2\r\n" + _bulk("127.0.0.1") + _bulk(str(port))}


SILENT: Answers = {b"SENTINEL": None}


class Actors:
    """Small servers on loopback that know one part each."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.asked = 0

    async def play(self, answers: Answers) -> int:
        """Start one; returns its port."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)
            commands = hiredis.Reader()
            while data := await reader.read(4_096):
                commands.feed(data)
                while (command := commands.gets()) is not False:
                    self.asked += 1
                    writer.write(answers.get(command[0], _UNKNOWN) or b"")
            writer.close()

        self._servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        port: int = self._servers[-1].sockets[0].getsockname()[1]
        return port

    async def url(self, *sentinels: Answers) -> str:
        """Start sentinels; returns the address of what they watch."""
        ports = [await self.play(answers) for answers in sentinels]
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/mymaster"

    async def found(self, *sentinels: Answers) -> int:
        """The port of the primary by these sentinels."""
        address = StoreAddress.parse(await self.url(*sentinels))
        found = await Sentinel(address.servers, address.name, address.primary, Timeouts())._named()
        return found.port

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.sleep(0)


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Server]:
    """A real server on a port."""
    server = Server(tmp_path / "valkey", free_port())
    yield server
    server.kill()


@pytest.mark.parametrize("others", [[_at(1)], [SILENT] * 4, [{b"SENTINEL": b"*-1\r\n"}], [_at("x")]])
def test_one_sentinel_that_knows_is_enough(others: list[Answers], primary: Server) -> None:
    """Whether those before it are stale, silent or mad, the sentinel that knows is heard."""

    async def scenario() -> None:
        async with Actors() as actors:
            url = await actors.url(*others, _at(primary.port or 0))
            async with Limiter.open(f"{url}?probe_ms=20&deadline_ms=2000") as limiter:
                assert (await limiter.hit("k", "5/hour")).source is Source.STORE

    asyncio.run(scenario())


def test_a_replica_is_not_taken_for_the_primary(sentinel_setup: SentinelSetup) -> None:
    """A stale sentinel that names a server which has become a replica is not believed."""

    async def scenario() -> None:
        replica, primary = sentinel_setup.replicas()[0].port or 0, sentinel_setup.primary().port or 0
        async with Actors() as actors:
            assert await actors.found(_at(replica), SILENT, _at(primary)) == primary
            with pytest.raises(StoreError, match=f"127.0.0.1:{replica} is not a primary"):
                await actors.found(_at(replica))

    asyncio.run(scenario())


def test_of_two_primaries_the_one_that_more_sentinels_name_is_taken() -> None:
    """An old primary that was cut off together with a sentinel is not taken while the others name another."""

    async def scenario() -> None:
        async with Actors() as actors:
            old, new = await actors.play({b"ROLE": PRIMARY}), await actors.play({b"ROLE": PRIMARY})
            assert await actors.found(_at(old), _at(new), _at(new)) == new
            assert await actors.found(_at(old), _at(new), _at(new), SILENT, SILENT) == new

    asyncio.run(scenario())


def test_a_primary_is_asked_once_and_believed_if_the_question_is_not_allowed() -> None:
    """Without the privilege for ROLE the word of the sentinels is good enough."""

    async def scenario() -> None:
        async with Actors() as actors:
            guarded = await actors.play({b"ROLE": b"-NOPERM this user has no permissions\r\n"})
            assert await actors.found(_at(guarded), _at(guarded), _at(guarded)) == guarded
            assert actors.asked <= 4

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        b"*1\r\n$1\r\nx\r\n",
        b"*3\r\n$1\r\nx\r\n$1\r\n1\r\n$1\r\n1\r\n",
        b"*2\r\n:1\r\n:1\r\n",
        b"*2\r\n$1\r\nx\r\n$-1\r\n",
        b"*2\r\n$1\r\nx\r\n" + _bulk("²"),
        b"*2\r\n$1\r\nx\r\n" + _bulk("9" * 5_000),
        b"*2\r\n$1\r\nx\r\n$5\r\n65536\r\n",
        b"*2\r\n$1\r\nx\r\n$1\r\n0\r\n",
        b"*2\r\n" + _bulk(b"\xff\0") + b"$1\r\n1\r\n",
        b"*2\r\n" + _bulk("x" * 300) + b"$1\r\n1\r\n",
        b"*-1\r\n",
        b"+OK\r\n",
        b":1\r\n",
        b"-ERR no\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
    ],
)
def test_a_malformed_answer_is_an_outage(answer: bytes) -> None:
    """Whatever a sentinel answers, it is a `StoreError` that names the sentinel and may be gone next time."""

    async def scenario() -> None:
        async with Actors() as actors:
            with pytest.raises(StoreError, match=r"no sentinel knows where mymaster is \(127\.0\.0\.1:") as raised:
                await actors.found({b"SENTINEL": answer})
            assert raised.value.transient

    asyncio.run(scenario())


@pytest.mark.parametrize("role", [REPLICA, b"*1\r\n$8\r\nsentinel\r\n", b"*0\r\n", b"+OK\r\n", b"*-1\r\n", b"?\r\n"])
def test_a_server_that_does_not_call_itself_primary_is_none(role: bytes) -> None:
    """Replicas, sentinels and what is no Redis server at all are not taken for the primary."""

    async def scenario() -> None:
        async with Actors() as actors:
            with pytest.raises(StoreError, match="no sentinel knows where"):
                await actors.found(_at(await actors.play({b"ROLE": role})))

    asyncio.run(scenario())


def test_sentinels_that_come_to_their_senses_are_heard_again(primary: Server) -> None:
    """After malformed answers the primary is found as soon as an answer is sound, without a restart."""

    async def scenario() -> None:
        async with Actors() as actors:
            answers: Answers = {b"SENTINEL": b"*1\r\n$1\r\nx\r\n"}
            async with Limiter.open(f"{await actors.url(answers)}?probe_ms=20") as limiter:
                assert (await limiter.hit("k", "5/hour")).source is Source.DEGRADED_ALLOW
                answers.update(_at(primary.port or 0))
                while (await limiter.hit("k", "5/hour")).source is not Source.STORE:  # noqa: ASYNC110 (nothing tells)
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 20))
