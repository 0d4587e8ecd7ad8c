"""The feed and the cache keep their promises in memory and on every kind of Redis."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.support.servers import ring_url

from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryCache, MemoryFeed
from headgate.adapters.redis import RedisCache, feed_at, store_at
from headgate.controlplane.documents import make, read
from headgate.errors import StoreError
from headgate.ports import BLOCKS, RULES, Announcement, Document, FeedState, Position, digest_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.valkey import Server

    from headgate.ports import Cache, Feed

KINDS = ("memory", "one", "sentinel", "cluster", "ring")


@dataclass
class Place:
    """Where feeds and caches are; each that is opened is one process's."""

    url: str | None

    def __post_init__(self) -> None:
        self._memory = (MemoryFeed(), MemoryCache(wall_clock))

    @asynccontextmanager
    async def feed(self) -> AsyncIterator[Feed]:
        feed = self._memory[0] if self.url is None else feed_at(self.url)
        yield feed
        await feed.close()

    @asynccontextmanager
    async def cache(self) -> AsyncIterator[Cache]:
        if self.url is None:
            yield self._memory[1]
            return
        store = store_at(f"{self.url}?deadline_ms=5000")
        yield RedisCache(store)
        await store.close()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind in turn, with nothing in it."""
    match request.param:
        case "one":
            return Place(request.getfixturevalue("valkey").url)
        case "ring":
            return Place(ring_url(request.getfixturevalue("ring_servers")))
        case "sentinel" | "cluster":
            return Place(request.getfixturevalue(f"{request.param}_setup").url)
    return Place(None)


def test_a_feed_begins_with_nothing(place: Place) -> None:
    """Where nothing was announced there is no document and the position is 0."""

    async def run() -> None:
        async with place.feed() as feed:
            assert await feed.state() == FeedState(Position("", 0, ""), {})
            assert await feed.document(RULES) is None

    asyncio.run(run())


def test_a_document_reaches_another_process_as_it_was_put(place: Place) -> None:
    """Documents of all kinds come back byte by byte, also large ones."""

    async def run() -> None:
        noise = random.Random(7).randbytes(1_500_000).hex()  # as large as a few hundred thousand rules
        rules, blocks = make(RULES, 7, {"noise": noise}, "l1"), make(BLOCKS, 9, [], "l1")
        async with place.feed() as one, place.feed() as other:
            await one.put(rules)
            await one.put(blocks)
            found = await other.document(RULES)
            assert found == rules
            assert read(found) == {"noise": noise}
            assert (await other.state()).documents == {RULES: rules.id, BLOCKS: blocks.id}

    asyncio.run(run())


def test_a_newer_document_stays(place: Place) -> None:
    """An older document does not replace a newer one, except if its numbers are those of another lineage."""

    async def run() -> None:
        async with place.feed() as feed:
            for number in (7, 6):
                await feed.put(make(RULES, number, {}, "l1"))
                assert (await feed.state()).documents[RULES].number == 7
            again = make(RULES, 7, {"rules": []}, "l1")
            await feed.put(again)
            assert await feed.document(RULES) == again
            restored = make(RULES, 3, {}, "l2")
            await feed.put(restored)
            assert await feed.document(RULES) == restored

    asyncio.run(run())


def test_a_document_is_never_half_of_two(place: Place) -> None:
    """Who reads while documents are put gets one of them whole."""

    async def run() -> None:
        bodies = [random.Random(number).randbytes(1_300_000) for number in range(30)]
        documents = [
            Document(RULES, number, body, digest_of(RULES, number, body), "l1") for number, body in enumerate(bodies)
        ]
        async with place.feed() as one, place.feed() as other:
            await one.put(documents[0])

            async def read_on() -> None:
                while not putting.done():
                    with suppress(StoreError):  # it changed each time
                        found = await other.document(RULES)
                        assert found is not None
                        assert found.is_intact
                    await asyncio.sleep(0)

            async def put_all() -> None:
                for document in documents:
                    await one.put(document)
                    await asyncio.sleep(0.002)

            putting = asyncio.create_task(put_all())
            await read_on()
            assert await other.document(RULES) == documents[-1]

    asyncio.run(run())


def test_every_listener_receives_announcements(place: Place) -> None:
    """Announcements arrive in order, whole, at all who listen."""

    async def run() -> None:
        said = [
            Announcement(0, Position("l1", 4, "m4"), ["rules", "user:ü{1}", "key:0a"]),
            Announcement(4, Position("l1", 5, "m5"), ["*"]),
        ]
        async with place.feed() as one, place.feed() as other:
            async with aclosing(one.announcements()) as here, aclosing(other.announcements()) as there:
                assert await anext(here) is None
                assert await anext(there) is None
                for announcement in said:
                    await other.announce(announcement)
                for arriving in (here, there):
                    assert [await anext(arriving), await anext(arriving)] == said
            assert (await one.state()).position == Position("l1", 5, "m5")

    asyncio.run(run())


def test_a_position_never_goes_back(place: Place) -> None:
    """Of two who announce at once the one who is behind changes nothing; another lineage begins anew."""

    async def run() -> None:
        async with place.feed() as feed:
            for lineage, number, then in (("l1", 5, 5), ("l1", 4, 5), ("l2", 1, 1)):
                await feed.announce(Announcement(0, Position(lineage, number, f"m{number}"), []))
                assert (await feed.state()).position == Position(lineage, then, f"m{then}")

    asyncio.run(run())


async def _get(cache: Cache, *names: str) -> list[bytes | None]:
    return list((await cache.get_many(names)).values)


async def _put(cache: Cache, name: str, value: bytes, seconds: float = 60) -> None:
    """Put what was missing, or past its time, a moment ago."""
    looked = await cache.get_many([name])
    assert looked.era is not None
    await cache.put_many({name: value}, seconds, looked.era)


def test_cached_values_are_found_by_all_until_they_are_dropped(place: Place) -> None:
    """Any bytes come back, under any name, many at once; a value that was dropped is gone everywhere."""

    async def run() -> None:
        values = {"hg:user:u1": b"", "hg:user:{x}y": b"\0\xff", "hg:key:0a": b"=", "hg:user:ü": b"v"}
        values |= {f"hg:user:{number}": b"%d" % number for number in range(250)}
        async with place.cache() as one, place.cache() as other:
            looked = await one.get_many([*values])
            assert looked.values == [None] * len(values)
            assert looked.era is not None
            await one.put_many(values, 60, looked.era)
            assert await _get(other, *values) == [*values.values()]
            assert await _get(other, "hg:user:none", "hg:key:0a", "hg:user:none") == [None, b"=", None]
            assert await one.drop(["hg:user:u1", "hg:key:0a"])
            assert (await _get(other, *values))[:4] == [None, b"\0\xff", None, b"v"]
            assert await one.drop(["*"])
            assert await _get(other, *values) == [None] * len(values)
            await _put(one, "hg:user:ü", b"after")
            assert await _get(other, "hg:user:ü") == [b"after"]

    asyncio.run(run())


@pytest.mark.parametrize("before", [None, b"older"])
def test_what_was_read_before_it_changed_cannot_come_back(place: Place, before: bytes | None) -> None:
    """A record that was read before it was dropped, alone or with all, is not put back, in place of none or another."""

    async def run() -> None:
        async with place.cache() as slow, place.cache() as other:
            for number, dropped in enumerate((f"hg:user:{before!r}", "*")):
                name = f"hg:user:{before!r}" if number == 0 else "hg:user:another"
                if before is not None:
                    await _put(other, name, before)
                looked = await slow.get_many([name])  # and goes to the database
                assert looked.era is not None
                assert await other.drop([dropped])
                await slow.put_many({name: b"old"}, 60, looked.era)
                assert await _get(other, name) == [None]

    asyncio.run(run())


def test_a_value_that_is_there_is_replaced(place: Place) -> None:
    """What was put last holds, so that a record past its time is followed by a new one; and it ends by itself."""

    async def run() -> None:
        async with place.cache() as cache:
            await _put(cache, "hg:user:u1", b"one")
            await _put(cache, "hg:user:u1", b"two")
            assert await _get(cache, "hg:user:u1") == [b"two"]
            await _put(cache, "hg:user:u1", b"three", 0.001)
            async with asyncio.timeout(5):
                while await _get(cache, "hg:user:u1") != [None]:  # noqa: ASYNC110 (nothing tells)
                    await asyncio.sleep(0.001)

    asyncio.run(run())


def test_names_do_not_choose_where_they_are_kept(valkey: Server) -> None:
    """A name with braces would pick the slot of a cluster; names that differ stay different."""

    async def run() -> None:
        async with Place(valkey.url).cache() as cache:
            for name in ("hg:user:{x}", "hg:user:%7Bx%7D", "hg:user:x"):
                await _put(cache, name, name.encode())
                assert await _get(cache, name) == [name.encode()]

    asyncio.run(run())
    keys = [key for key in valkey.contents() if b"hg:user" in key]
    assert len(keys) == 3
    assert not any(b"{" in key for key in keys)
