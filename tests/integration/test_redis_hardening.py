"""What a review found: callers that no server, loop or caller of another kind may leave hanging."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import hiredis
import pytest
from tests.support.servers import ring_url

from headgate import Limiter, Request, StoreError
from headgate.adapters.redis import store_at
from headgate.adapters.redis.replies import is_outage, store_error
from headgate.core.decision import Hit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.valkey import Server

HOUR = 3_600_000_000
FIVE = Meter(Rate(5, HOUR), Algorithm.FIXED_WINDOW)
PATIENT = "?deadline_ms=5000"


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[str]:
    """The address of a server that answers every read with the same bytes."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while await reader.read(65_536):
                writer.write(reply)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
            await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        if serving:
            await asyncio.wait(serving)


async def answer_of(url: str) -> object:
    """What becomes of one take; it must not hang."""
    store = store_at(f"{url}?deadline_ms=2000")
    try:
        return await asyncio.wait_for(store.take([Hit("k", FIVE, 1)]), 10)
    except StoreError as error:
        return error
    finally:
        await store.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"$0\r\n\r\n",
        b"$5\r\nshort\r\n",
        b"$8\r\n12345678\r\n",
        b"$136\r\n" + b"x" * 136 + b"\r\n",
        b"+OK\r\n",
        b":1\r\n",
        b"*0\r\n",
        b"-MOVED\r\n",
        b"-MOVED 1 nowhere\r\n",
        b"-MOVED 1 host:x\r\n",
        b"-ASK 1\r\n",
        b"-ERR\r\n",
        b"-\r\n",
        b"$72\r\n" + b"x" * 72 + b"\r\n+more\r\n",
        b"not Redis at all",
    ],
)
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_whatever_a_server_says_its_callers_are_answered(reply: bytes, scheme: str) -> None:
    """An answer that makes no sense is an error or, if it has the right length, a decision; never an endless wait."""

    async def scenario() -> None:
        async with answering(reply) as url:
            answer = await answer_of(url.replace("redis", scheme, 1))
            assert isinstance(answer, StoreError | list)

    asyncio.run(scenario())


def test_push_messages_are_passed_over(valkey: Server) -> None:
    """What a server pushes (RESP 3) is not taken for an answer."""

    async def scenario() -> None:
        store = store_at(f"{valkey.url}{PATIENT}&protocol=3")
        await store.take([Hit("k", FIVE, 1)])
        connection = store.topology.node(0)._connector.connection
        assert connection is not None
        connection.data_received(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
        assert (await store.take([Hit("k", FIVE, 1)]))[0].remaining == 3
        await store.close()

    asyncio.run(scenario())


def in_loops_of_their_own(url: str) -> list[int | None]:
    limiter = Limiter.open(url)

    async def scenario(seconds: float) -> int | None:
        await asyncio.sleep(seconds)
        return (await asyncio.wait_for(limiter.hit("k", "9/hour"), 10)).remaining

    remaining = [asyncio.run(scenario(seconds)) for seconds in (0, 0, 0.01, 0.01)]
    asyncio.run(limiter.close())
    return remaining


def test_one_limiter_serves_one_event_loop_after_the_other(valkey: Server) -> None:
    """A limiter made once for a program of many short loops (asyncio.run) works in each of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of the loops that ended with an open connection
        assert in_loops_of_their_own(valkey.url + PATIENT) == [8, 7, 6, 5]
        gc.collect()


def test_two_event_loops_at_once_are_refused_with_a_sentence(valkey: Server) -> None:
    """A limiter that another running loop uses says so, instead of mixing the two up."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as limiter:
            await limiter.hit("k", "9/hour")

            def elsewhere() -> None:
                with pytest.raises(StoreError, match="one event loop at a time"):
                    asyncio.run(limiter.hit("k", "9/hour"))

            await asyncio.to_thread(elsewhere)
            assert (await limiter.hit("k", "9/hour")).remaining == 7

    asyncio.run(scenario())


def test_after_close_there_are_no_answers(valkey: Server) -> None:
    """A limiter that was closed refuses with a sentence; it does not let everything pass."""

    async def scenario() -> None:
        limiter = Limiter.open(valkey.url + PATIENT)
        await limiter.hit("k", "5/hour")
        await limiter.close()
        with pytest.raises(StoreError, match="was closed; open another one"):
            await limiter.hit("k", "5/hour")

    asyncio.run(scenario())


def test_a_request_with_hundreds_of_limits(valkey: Server) -> None:
    """However many limits a request meets, all are taken or none, and others beside it are answered."""
    rules = [
        {"name": f"r{layer}", "layer": f"l{layer}", "limits": [f"{9 + second}/{second + 1}h" for second in range(8)]}
        for layer in range(150)
    ]

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT, {"rules": rules}) as limiter:
            both = await asyncio.gather(limiter.check(Request()), limiter.hit("innocent", "5/hour"))
            assert [verdict.allowed for verdict in both] == [True, True]
            assert len(both[0].decisions) == 1_200
            assert both[0].source == "store"
            assert {decision.remaining for decision in both[0].decisions} == set(range(8, 16))

    asyncio.run(scenario())


def test_what_cannot_be_sent_shifts_nobodys_answer(valkey: Server) -> None:
    """A key that cannot be written down is an error of its own; later answers are not one off."""

    async def scenario() -> None:
        store = store_at(valkey.url + PATIENT)
        await store.take([Hit("k", FIVE, 1)])
        with pytest.raises(UnicodeEncodeError):
            await store.reset(["\ud800"])
        with pytest.raises(StoreError, match="could not be sent") as caught:
            await store.take([Hit("\ud800", FIVE, 1)])
        assert not caught.value.transient
        assert (await store.take([Hit("k", FIVE, 1)]))[0].remaining == 3
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("renamed", [("--rename-command", "AUTH", "XAUTH"), ()])
def test_a_refused_greeting_repeats_no_password(
    renamed: tuple[str, ...], tmp_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """Servers repeat what they do not understand; we do not, and callers are answered as in any outage."""
    server = tmp_server(renamed)

    async def scenario() -> None:
        url = server.url.replace("unix://", "unix://app:s3cretpassword@")
        async with Limiter.open(f"{url}{PATIENT}&on_store_error=deny") as limiter:
            assert (await limiter.hit("k", "5/hour")).source == "degraded_deny"
        with pytest.raises(StoreError, match=r"refused AUTH: (ERR|WRONGPASS)") as caught:
            await store_at(url).connect()
        assert caught.value.transient
        assert "s3cret" not in str(caught.value)

    asyncio.run(scenario())
    assert "s3cret" not in caplog.text


def test_a_server_with_no_room_for_clients_is_an_outage(valkey: Server) -> None:
    """A server that takes no more connections says so in place of the first answer; callers are not told."""
    valkey.ask("CONFIG", "SET", "maxclients", "2")

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}{PATIENT}") as one, Limiter.open(f"{valkey.url}{PATIENT}") as other:
            await one.hit("k", "5/hour")
            async with Limiter.open(f"{valkey.url}{PATIENT}&on_store_error=deny") as third:
                sources = {(await other.hit("k", "5/hour")).source, (await third.hit("k", "5/hour")).source}
                assert "degraded_deny" in sources

    try:
        asyncio.run(scenario())
    finally:
        valkey.restart()


@pytest.mark.parametrize(
    ("line", "transient", "outage"),
    [
        ("LOADING x", True, True),
        ("CLUSTERDOWN The cluster is down", True, True),
        ("CLUSTERDOWN Hash slot not served", True, False),
        ("NOPERM No permissions to access a key", True, False),
        ("MOVED 1 h:1", True, False),
        ("ERR max number of clients reached", True, True),
        ("DENIED Redis is running in protected mode", True, True),
        ("WRONGTYPE Operation against a key", False, False),
        ("ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed", True, True),
    ],
)
def test_what_an_error_means(line: str, transient: bool, outage: bool) -> None:  # noqa: FBT001 (parameters)
    """Only what a server says of its own state is an outage; what may pass by itself is transient."""
    reply = hiredis.ReplyError(line)
    assert store_error(reply).transient is transient
    assert is_outage(reply) is outage


def test_a_refused_request_is_given_back_even_if_its_caller_leaves(ring_servers: list[Server]) -> None:
    """A caller that is cancelled in the middle leaves no charge behind for a request that was refused."""

    async def scenario() -> None:
        chance = random.Random(3)
        store = store_at(ring_url(ring_servers) + PATIENT)
        thousand = Meter(Rate(1_000, HOUR), Algorithm.FIXED_WINDOW)
        keys = [f"rl:{{u=n{number}}}:r:fw1h" for number in range(50)]
        first = keys[0]
        other = next(key for key in keys if store.topology.shard_of(key) != store.topology.shard_of(first))
        full, shared = Hit(first, FIVE, 5), Hit(other, thousand, 1)
        await store.take([full])

        async def one() -> None:
            task = asyncio.ensure_future(store.take([shared, full]))
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

        await asyncio.gather(*[one() for _ in range(200)])
        while store._cross_slot._tasks:
            await asyncio.wait(store._cross_slot._tasks)
        assert (await store.peek([shared._replace(cost=0)]))[0].remaining == 1_000
        await store.close()

    asyncio.run(scenario())
