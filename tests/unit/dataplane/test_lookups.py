"""Look-ups in the database: many with one query, and when the database counts as unavailable."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.fake_records import QUICK, FakeSource, steady
from tests.support.waiting import wait_until_async

from headgate.dataplane.lookups import MAX_NAMES, MAX_QUERIES, MAX_WAITING, Lookups
from headgate.dataplane.record_cache import Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest


class FakeReader:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.unread: list[str] = []
        self.recoveries = 0

    def answered(self, batch: Sequence[Wanted], found: Mapping[Any, Mapping[str, Any]]) -> None:
        self.answers |= {wanted.name: found.get(wanted.subject) for wanted in batch}

    def unavailable(self, batch: Sequence[Wanted]) -> None:
        self.unread += [wanted.name for wanted in batch]

    def recovered(self) -> None:
        self.recoveries += 1


class Looking:
    """Look-ups on a fake database."""

    def __init__(self, **deadlines: float) -> None:
        self.source = FakeSource()
        self.source.users_on_record = {"u1": {"tier": "pro"}}
        self.reader = FakeReader()
        self.lookups = Lookups(self.source, self.reader, steady, QUICK._replace(**deadlines))


def users(*names: str) -> list[Wanted]:
    return [Wanted(f"user:{name}", name, 0) for name in names]


def numbered(many: int) -> list[Wanted]:
    return users(*map(str, range(many)))


def test_what_is_asked_together_is_one_query() -> None:
    """Users and keys each, because they are in different tables; what is not on record is told, too."""

    async def run() -> None:
        looking = Looking()
        looking.source.add_key(bytes(32))
        looking.lookups.ask([*users("u1", "u2"), Wanted("key:00", bytes(32), 0)])
        await wait_until_async(lambda: len(looking.reader.answers) == 3)
        assert looking.source.queries == [["u1", "u2"], [bytes(32).hex()]]
        assert looking.reader.answers["user:u1"] == {"tier": "pro"}
        assert looking.reader.answers["user:u2"] is None
        assert looking.reader.answers["key:00"] is not None
        await looking.lookups.close()
        assert looking.source.closed

    asyncio.run(run())


def test_queries_are_bounded_in_size_and_in_number() -> None:
    """A burst goes in pieces, so many at once; what comes meanwhile goes with the next."""

    async def run() -> None:
        looking = Looking(reply=60.0)
        looking.source.frozen = asyncio.Event()
        looking.lookups.ask(numbered(5 * MAX_NAMES))
        looking.lookups.ask(users("u1"))
        await wait_until_async(lambda: len(looking.source.queries) == MAX_QUERIES)
        await asyncio.sleep(0)
        assert [len(query) for query in looking.source.queries] == [MAX_NAMES] * MAX_QUERIES
        looking.source.frozen.set()
        await wait_until_async(lambda: len(looking.reader.answers) == 5 * MAX_NAMES + 1)
        assert [len(query) for query in looking.source.queries] == [MAX_NAMES] * 5 + [1]
        assert looking.reader.unread == []
        await looking.lookups.close()

    asyncio.run(run())


def test_many_who_wait_are_no_evidence_against_the_database() -> None:
    """A queue that takes many times the deadline, with replies all along, is waited for to its end."""

    async def run() -> None:
        looking = Looking(reply=0.02)

        async def in_a_while(names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
            await asyncio.sleep(0.01)
            return {name: {"tier": "pro"} for name in names}

        looking.source.users = in_a_while  # type: ignore[method-assign] # slow, and alive
        looking.lookups.ask(numbered(40 * MAX_NAMES))
        await wait_until_async(lambda: len(looking.reader.answers) + len(looking.reader.unread) == 40 * MAX_NAMES)
        assert looking.reader.unread == []
        assert looking.lookups.is_available
        await looking.lookups.close()

    asyncio.run(run())


def test_more_than_fit_into_the_queue_are_told_at_once() -> None:
    """Memory is bounded, whatever the database does."""

    async def run() -> None:
        looking = Looking(reply=60.0)
        looking.source.frozen = asyncio.Event()
        looking.lookups.ask(numbered(MAX_WAITING + 7))
        assert len(looking.reader.unread) == 7
        await looking.lookups.close()

    asyncio.run(run())


def test_a_silent_database_is_unavailable_after_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    """All who wait are told, in flight or in the queue, those who come later at once; a late reply ends it."""

    async def run() -> None:
        looking = Looking()
        looking.source.frozen = asyncio.Event()
        looking.lookups.ask(numbered(3 * MAX_NAMES))
        await wait_until_async(lambda: not looking.lookups.is_available)
        assert len(looking.reader.unread) == 3 * MAX_NAMES
        asked = len(looking.source.queries)
        looking.lookups.ask(users("u1"))
        assert looking.reader.unread[-1] == "user:u1"
        assert len(looking.source.queries) == asked
        looking.source.frozen.set()
        await wait_until_async(lambda: looking.lookups.is_available)
        assert looking.reader.recoveries == 1
        looking.lookups.ask(users("u1"))
        await wait_until_async(lambda: looking.reader.answers.get("user:u1") is not None)
        await looking.lookups.close()

    asyncio.run(run())
    assert caplog.text.count("circuit open") == 1
    assert caplog.text.count("circuit closed") == 1
    assert "nothing to read, 2 in flight; 768 look-ups waiting" in caplog.text


def test_a_reply_that_lies_in_the_socket_is_a_reply() -> None:
    """As long as something is there to be read, this process is behind, not the database."""

    async def run() -> None:
        looking = Looking(reply=0.005)
        looking.source.frozen = asyncio.Event()
        looking.source.unread = True
        looking.lookups.ask(users("u1"))
        await wait_until_async(lambda: looking.source.looks >= 50)
        assert looking.lookups.is_available
        looking.source.frozen.set()
        await wait_until_async(lambda: "user:u1" in looking.reader.answers)
        await looking.lookups.close()

    asyncio.run(run())


def test_a_connection_in_the_making_has_a_longer_deadline() -> None:
    """A server has more to do for a connection than for a query, and its socket cannot be looked at."""

    async def run() -> None:
        looking = Looking(reply=0.005, connect=0.05)
        looking.source.frozen, looking.source.connecting = asyncio.Event(), True
        looking.lookups.ask(users("u1"))
        await wait_until_async(lambda: not looking.lookups.is_available)
        assert looking.source.looks >= 0.05 / (0.005 / 10)
        await looking.lookups.close()

    asyncio.run(run())


def test_a_connection_that_was_made_breaks_the_silence() -> None:
    """The time that it took does not count against the query behind it."""

    async def run() -> None:
        looking = Looking(reply=0.02, connect=60.0)
        looking.source.frozen, looking.source.connecting = asyncio.Event(), True
        looking.lookups.ask(users("u1"))
        await wait_until_async(lambda: looking.lookups._silence.lasts > 0.03)
        looking.source.connecting = False
        looks = looking.source.looks
        await wait_until_async(lambda: not looking.lookups.is_available)
        assert looking.source.looks >= looks + 10, "a deadline of its own"
        await looking.lookups.close()

    asyncio.run(run())


def test_a_database_that_refuses_is_unavailable_and_probed() -> None:
    """An error is not waited for; probes find out when it has recovered."""

    async def run() -> None:
        looking = Looking()
        looking.source.away = True
        looking.lookups.ask(users("u1"))
        await wait_until_async(lambda: not looking.lookups.is_available)
        assert looking.reader.unread == ["user:u1"]
        probes = len(looking.source.queries)
        await wait_until_async(lambda: len(looking.source.queries) >= probes + 3)
        looking.source.away = False
        await wait_until_async(lambda: looking.lookups.is_available)
        probes = len(looking.source.queries)
        await asyncio.sleep(5 * QUICK.probe)
        assert len(looking.source.queries) == probes, "no more probes"
        await looking.lookups.close()

    asyncio.run(run())


def test_connections_that_stay_silent_are_abandoned() -> None:
    """Their host may be gone without a word; what comes next goes by new ones."""

    async def run() -> None:
        looking = Looking(reply=0.005, abandon=0.02)
        looking.source.frozen = asyncio.Event()
        looking.lookups.ask(numbered(MAX_NAMES * MAX_QUERIES))
        await wait_until_async(lambda: looking.source.abandoned > 0)
        looking.source.frozen = None
        await wait_until_async(lambda: looking.lookups.is_available)
        await looking.lookups.close()

    asyncio.run(run())


def test_a_start_makes_the_connections_and_goes_on_without() -> None:
    """With a database that is silent a process starts without it."""

    async def run() -> None:
        looking = Looking()
        await looking.lookups.start()
        assert looking.source.queries == [[bytes(32).hex()]] * MAX_QUERIES
        looking.source.frozen = asyncio.Event()
        await looking.lookups.start()
        await looking.lookups.close()

    asyncio.run(run())


def test_a_fault_of_our_own_leaves_no_caller_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and those who wait are told that nothing could be read."""

    async def run() -> None:
        looking = Looking()

        async def broken(_names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
            raise KeyError

        looking.source.users = broken  # type: ignore[assignment, method-assign] # a fault
        looking.lookups.ask(users("u1"))
        await wait_until_async(lambda: looking.reader.unread == ["user:u1"])
        assert looking.lookups.is_available
        await looking.lookups.close()

    asyncio.run(run())
    assert "a look-up of users or API keys failed" in caplog.text
