"""Following the database directly while the feed is unavailable, and going back without going backwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import wait_until_async
from tests.unit.controlplane.subscriber_trial import SOON, Stored, Trial, rules

from headgate.adapters.saved_documents import SavedDocuments
from headgate.controlplane.documents import make
from headgate.controlplane.subscriber import ActiveDocument, DocumentOrigin, Followed, Refusal
from headgate.ports import Announcement, Position

if TYPE_CHECKING:
    from pathlib import Path


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("rules: ")]


@pytest.mark.parametrize("how", ["away", "frozen"])
def test_what_is_published_while_the_feed_is_unavailable_is_taken_from_the_database(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rules and blocks are activated, saved to disk and confirmed; the log says so once."""

    async def run() -> None:
        database, saved = Stored(rules(7, 7)), SavedDocuments(tmp_path)
        trial = Trial(saved, database=database, patience=SOON)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed.is_down, trial.feed.is_frozen = True, how == "frozen"
            database.publish(rules(8, 8))
            database.publish(make("blocks", 9, [], "l1"))
            await trial.until(8)
            await wait_until_async(
                lambda: trial.subscriber.state["blocks"] == ActiveDocument(DocumentOrigin.DATABASE, 9)
            )
            assert trial.subscriber.state["rules"] == ActiveDocument(DocumentOrigin.DATABASE, 8)
            await wait_until_async(lambda: trial.subscriber.followed is Followed.DATABASE)
            before = trial.subscriber.confirmed
            await wait_until_async(lambda: trial.subscriber.confirmed != before)
            assert saved.read("rules") == rules(8, 8)
            reason = "connection refused" if how == "away" else f"no answer within {SOON:g} s"
            assert _said(caplog) == [f"rules: redis unavailable, changes come from PostgreSQL: {reason}"]

    asyncio.run(run())


def test_a_damaged_document_of_the_feed_does_not_bar_the_good_one_of_the_database() -> None:
    """What was refused for its bytes is taken from the database as soon as that has it whole."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database, patience=SOON)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            good = rules(8, 8)
            database.is_down = True
            await trial.feed.publish(good._replace(body=good.body[:-1] + b"?"))
            await wait_until_async(lambda: trial.subscriber.refused[Refusal.DIGEST] > 0)
            trial.feed.is_down = True
            database.is_down = False
            database.publish(good)
            await trial.until(8)
            assert trial.subscriber.state["rules"] == ActiveDocument(DocumentOrigin.DATABASE, 8)

    asyncio.run(run())


def test_the_database_is_not_polled_while_the_feed_answers() -> None:
    """It is asked at the start for what the feed does not have, and not once a second."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks(10)
            assert database.looked == 0
            assert trial.subscriber.followed is Followed.FEED

    asyncio.run(run())


def test_a_feed_that_is_only_slow_is_not_said_to_be_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    """An answer that comes late, as after a stopped process goes on, ends the doubt before the database is asked."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database, every=60)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks(1)
            trial.subscriber._lose("no answer within 0.5 s")  # what the timer does
            trial.subscriber._woken.set()
            await trial.feed.looks(1)
            await wait_until_async(lambda: trial.subscriber.trouble is None)
            assert database.looked == 0
            assert _said(caplog) == []

    asyncio.run(run())


def test_a_process_goes_back_to_the_feed_and_never_to_older_documents(caplog: pytest.LogCaptureFixture) -> None:
    """A feed that recovers with what it had before is not followed until it has what is active."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed.is_down = True
            database.publish(rules(9, 9))
            await trial.until(9)
            await wait_until_async(lambda: trial.subscriber.followed is Followed.DATABASE)
            trial.feed.is_down = False
            await trial.feed.looks(4)
            assert trial.subscriber.followed is Followed.DATABASE
            assert trial.subscriber.trouble == "it has rules 7, older than the active 9"
            assert (trial.limits, dict(trial.subscriber.refused)) == (["9/hour"], {})
            await trial.feed.publish(rules(9, 9))  # the announcer has caught up
            await wait_until_async(lambda: trial.subscriber.followed is Followed.FEED)
            await trial.feed.publish(rules(10, 10))
            await trial.until(10)
            assert trial.subscriber.state["rules"] == ActiveDocument(DocumentOrigin.FEED, 10)
            looked = database.looked
            await trial.feed.looks(5)
            assert database.looked == looked
        assert _said(caplog) == [
            "rules: redis unavailable, changes come from PostgreSQL: connection refused",
            "rules: redis recovered, changes come from it again",
        ]

    asyncio.run(run())


def test_what_was_committed_just_before_the_feed_recovered_is_not_missed() -> None:
    """The database is looked at once more before the feed is followed again."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed.is_down = True
            await wait_until_async(lambda: trial.subscriber.followed is Followed.DATABASE)
            assert trial.subscriber._direct is not None
            trial.subscriber._direct.end()  # no look of its own comes any more
            database.publish(rules(8, 8))
            trial.feed.is_down = False  # and the feed still has 7
            await trial.until(8)
            assert trial.subscriber.followed is Followed.DATABASE

    asyncio.run(run())


def test_a_database_of_another_lineage_is_right() -> None:
    """After a restore the numbers begin anew, and the database says which history holds, not a feed that is behind."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed.is_down = True
            database.lineage = "l2"
            database.publish(rules(3, 3, "l2"))
            await trial.until(3)
            await wait_until_async(lambda: trial.subscriber.followed is Followed.DATABASE)
            trial.feed.is_down = False
            await trial.feed.looks(3)
            assert trial.limits == ["3/hour"]

    asyncio.run(run())


def test_records_that_changed_are_forgotten_without_the_feed() -> None:
    """Users and keys that changed since the last announcement are; once the feed has recovered, all cached ones are."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed.is_down = True
            for name in ("user:u1", "key:0a", "user:u1"):
                database.change(name)
            await wait_until_async(lambda: trial.forgotten == [["user:u1", "key:0a"]])
            database.change("user:u2")
            await wait_until_async(lambda: trial.forgotten[1:] == [["user:u2"]])
            trial.forgotten.clear()
            trial.feed.is_silent = True
            await trial.feed.announce(Announcement(7, Position("l1", 11, "m"), ["user:u1"]))
            trial.feed.is_down = False
            await wait_until_async(lambda: trial.subscriber.followed is Followed.FEED)
            await wait_until_async(lambda: trial.forgotten == [["*"]])

    asyncio.run(run())


def test_with_both_unavailable_what_is_active_stays(caplog: pytest.LogCaptureFixture) -> None:
    """One line gives both reasons, and whichever answers first is followed."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database)
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed.is_down = database.is_down = True
            await wait_until_async(lambda: trial.subscriber.followed is Followed.NOTHING)
            assert trial.number == 7
            database.is_down = False
            database.publish(rules(8, 8))
            await trial.until(8)
            await wait_until_async(lambda: trial.subscriber.followed is Followed.DATABASE)
        nothing, directly = _said(caplog)
        assert nothing.startswith(
            "rules: redis unavailable, no changes received, active rules and blocks stay: connection refused; "
        )
        assert nothing.endswith("PostgreSQL unavailable: it does not answer")
        assert directly == "rules: redis unavailable, changes come from PostgreSQL: connection refused"

    asyncio.run(run())


def test_a_document_of_the_database_that_is_refused_is_not_fetched_again() -> None:
    """It is counted once, and the one before stays until a newer one is published."""

    async def run() -> None:
        database = Stored(rules(7, 7))
        trial = Trial(database=database)
        trial.feed.is_down = True
        await trial.subscriber.start(0.1)
        async with trial.running():
            database.publish(make("rules", 8, {"rules": [{"name": "x", "limits": "no"}]}, "l1"))
            await wait_until_async(lambda: trial.subscriber.refused == {Refusal.CONTENT: 1})
            fetched, looked = database.fetched, database.looked
            await wait_until_async(lambda: database.looked > looked + 3)
            assert database.fetched == fetched
            assert trial.number == 7
            database.publish(rules(9, 9))
            await trial.until(9)

    asyncio.run(run())


def test_a_database_is_asked_about_once_a_second() -> None:
    """However long the feed is unavailable, each process looks at the database at a bounded rate."""

    async def run() -> None:
        database, every = Stored(rules(7, 7)), 0.05
        trial = Trial(database=database, every=every)
        trial.feed.is_down = True
        await trial.subscriber.start(0.1)
        async with trial.running():
            began = asyncio.get_running_loop().time()
            await wait_until_async(lambda: database.looked >= 6)
            assert asyncio.get_running_loop().time() - began >= 5 * 0.8 * every

    asyncio.run(run())
