"""Following changes, in one process: what is activated, what is refused, what is forgotten."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.unit.controlplane.subscriber_trial import SOON, Stored, Trial, rules, sealed

from headgate.adapters.saved_documents import SavedDocuments
from headgate.controlplane.documents import make
from headgate.controlplane.subscriber import ActiveDocument, DocumentOrigin, Refusal
from headgate.ports import Announcement, Position

if TYPE_CHECKING:
    from pathlib import Path


def test_rules_are_active_as_they_are_published() -> None:
    """Each published rule set replaces the one before."""

    async def run() -> None:
        trial = Trial()
        await trial.subscriber.start()
        assert trial.subscriber.state["rules"] == ActiveDocument(DocumentOrigin.NOTHING, 0)
        async with trial.running():
            for number in (1, 2, 9):
                await trial.feed.publish(rules(number, number))
                await trial.until(number)
                assert trial.limits == [f"{number}/hour"]
        assert trial.subscriber.state["rules"] == ActiveDocument(DocumentOrigin.FEED, 9)
        assert trial.subscriber.missed == 0
        assert not trial.subscriber.refused

    asyncio.run(run())


GOOD = rules(8, 8)
POISON = {
    "tampered with": (GOOD._replace(body=rules(8, 9).body), Refusal.DIGEST),
    "truncated": (GOOD._replace(body=GOOD.body[:-5]), Refusal.DIGEST),
    "renumbered": (rules(3)._replace(number=8), Refusal.DIGEST),
    "of another kind": (make("blocks", 8, []), Refusal.KIND),
    "not compressed": (sealed(8, b"rules"), Refusal.BODY),
    "not JSON": (sealed(8, zlib.compress(b"rules: []")), Refusal.BODY),
    "too deep": (sealed(8, zlib.compress(b"[" * 100_000)), Refusal.BODY),
    "no rule set": (make("rules", 8, 5, "l1"), Refusal.CONTENT),
    "rules that do not compile": (make("rules", 8, {"rules": [{"name": "x", "limits": "no"}]}, "l1"), Refusal.CONTENT),
    "older": (rules(6), Refusal.OLDER),
}


@pytest.mark.parametrize("poison", POISON)
def test_a_poisoned_document_is_refused_once_and_the_one_before_stays(
    poison: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted by its reason, logged once, not fetched again, and a newer good one is taken."""
    document, why = POISON[poison]

    async def run() -> None:
        trial = Trial()
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            trial.feed.plant(document)
            await trial.feed.looks()
            fetched = trial.feed.fetched
            await trial.feed.looks(4)
            assert trial.feed.fetched == fetched == 2
            assert (trial.number, trial.limits) == (7, ["7/hour"])
            assert trial.subscriber.refused == {why: 1}
            said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
            assert len(said) == 1
            assert "refused, 7 stays active" in said[0]
            trial.feed.plant(rules(9, 9))
            await trial.until(9)
            assert trial.limits == ["9/hour"]

    asyncio.run(run())


def test_a_damaged_document_is_asked_of_the_database() -> None:
    """If the feed's copy is damaged the database has another."""

    async def run() -> None:
        trial = Trial(database=Stored(GOOD))
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            trial.feed.plant(GOOD._replace(body=b"damaged"))
            await trial.until(8)
            assert trial.subscriber.state["rules"] == ActiveDocument(DocumentOrigin.DATABASE, 8)

    asyncio.run(run())


def test_a_document_that_was_repaired_is_taken_once_that_is_announced() -> None:
    """A number that was refused is tried again when an announcement says so."""

    async def run() -> None:
        trial = Trial()
        await trial.feed.publish(rules(7, 7))
        await trial.subscriber.start()
        async with trial.running():
            trial.feed.plant(GOOD._replace(body=b"damaged"))
            await trial.feed.looks()
            await trial.feed.publish(GOOD)
            await trial.until(8)

    asyncio.run(run())


def test_records_that_changed_are_forgotten() -> None:
    """What is announced of users and keys is forgotten, and nothing else."""

    async def run() -> None:
        trial = Trial(every=60)
        await trial.feed.announce(Announcement(0, Position("l1", 3, "m"), []))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks(1)
            await trial.feed.announce(Announcement(3, Position("l1", 4, "m"), ["user:u1", "rules", "key:0a"]))
            await trial.feed.looks(1)
            assert trial.forgotten == [["user:u1", "key:0a"]]
            await trial.feed.announce(Announcement(4, Position("l1", 5, "m"), ["*"]))
            await trial.feed.looks(1)
            assert trial.forgotten[1:] == [["*"]]

    asyncio.run(run())


def test_a_lost_announcement_is_noticed_by_the_next() -> None:
    """Who was not told of change 4 and is told of what came after it forgets everything."""

    async def run() -> None:
        trial = Trial(every=60)
        await trial.feed.announce(Announcement(0, Position("l1", 3, "m"), []))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks(1)
            await trial.feed.announce(Announcement(4, Position("l1", 5, "m"), ["user:u1"]))
            await trial.feed.looks(1)
            assert trial.forgotten == [["*"]]

    asyncio.run(run())


def test_announcements_that_never_arrive_are_noticed_by_looking() -> None:
    """Rules come into force and records are forgotten though nothing is heard; once, not every second."""

    async def run() -> None:
        trial = Trial()
        await trial.feed.publish(rules(1))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed.is_silent = True
            await trial.feed.publish(rules(2), ["rules", "user:u1"])
            await trial.until(2)
            await trial.feed.looks(4)
            assert trial.forgotten == [["*"]]
            assert trial.subscriber.missed == 1

    asyncio.run(run())


def test_a_process_that_stumbles_over_an_announcement_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong with one, the next is heard; or nothing that changes would ever reach the process again."""

    async def run() -> None:
        trial = Trial()
        await trial.feed.publish(rules(1))
        await trial.subscriber.start()
        forget, trial.subscriber._forget = trial.subscriber._forget, trial.stumble
        async with trial.running():
            await trial.feed.looks()
            await trial.feed.publish(rules(2), ["user:u1"])
            await trial.until(2)
            trial.subscriber._forget = forget
            await trial.feed.publish(rules(3), ["rules", "user:u2"])
            await trial.until(3)
            assert "feed: the subscription failed" in caplog.text

    asyncio.run(run())


def test_two_who_announce_at_once_are_both_right() -> None:
    """Announcements that overlap, or come in another order, are no gap."""

    async def run() -> None:
        trial = Trial()
        await trial.feed.announce(Announcement(0, Position("l1", 3, "m"), []))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            await trial.feed.announce(Announcement(3, Position("l1", 5, "m"), ["user:a", "user:b"]))
            await trial.feed.announce(Announcement(3, Position("l1", 4, "m"), ["user:a"]))
            await trial.feed.announce(Announcement(5, Position("l1", 6, "m"), ["user:c"]))
            await trial.feed.looks(3)
            assert trial.forgotten == [["user:a", "user:b"], ["user:a"], ["user:c"]]

    asyncio.run(run())


def test_numbers_of_another_lineage_begin_anew() -> None:
    """After a database was restored its older numbers are taken, and everything is forgotten."""

    async def run() -> None:
        trial = Trial()
        await trial.feed.publish(rules(7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            await trial.feed.publish(rules(3, 3, "l2"), ["*"], since=0)
            await trial.until(3)
            assert trial.limits == ["3/hour"]
            assert trial.forgotten == [["*"]]
            trial.feed.is_silent = True
            await trial.feed.publish(rules(2, 2, "l3"), ["*"], since=0)
            await trial.until(2)
            await trial.feed.looks()
            assert trial.forgotten == [["*"], ["*"]]

    asyncio.run(run())


def test_a_feed_that_was_emptied_takes_nothing_away(caplog: pytest.LogCaptureFixture) -> None:
    """Rules stay active while the feed has none, or is unavailable; both are said once."""

    async def run() -> None:
        trial = Trial()
        await trial.feed.publish(rules(7))
        await trial.subscriber.start()
        async with trial.running():
            await trial.feed.looks()
            trial.feed._documents.clear()
            trial.feed._position = Position()
            await trial.feed.looks(3)
            trial.feed.is_down = True
            await asyncio.sleep(5 * SOON)
            assert trial.subscriber.trouble == "connection refused"
            trial.feed.is_down = False
            await trial.feed.looks()
            assert trial.number == 7
            assert trial.subscriber.trouble is None
            assert trial.forgotten == []
        assert [record.getMessage() for record in caplog.records if "redis" in record.getMessage()] == [
            "rules: redis unavailable, no changes received, active rules and blocks stay: connection refused",
            "rules: redis recovered, changes come from it again",
        ]

    asyncio.run(run())


@pytest.mark.parametrize("is_frozen", [True, False], ids=["frozen", "away"])
@pytest.mark.parametrize("has_database", [True, False], ids=["database", "no database"])
@pytest.mark.parametrize("has_saved", [True, False], ids=["saved", "nothing saved"])
def test_a_process_starts_whatever_is_unavailable(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    is_frozen: bool,
    has_database: bool,
    has_saved: bool,
) -> None:
    """By what the database has, else by what was saved, else by nothing; it says so, and follows once it can."""

    async def run() -> None:
        database = Stored(rules(6, 6), make("blocks", 2, [], "l1"))
        database.is_down, database.is_frozen = not has_database, is_frozen and not has_database
        saved = SavedDocuments(tmp_path)
        if has_saved:
            saved.write(rules(5, 5))
        trial = Trial(saved, database=database)
        trial.feed.is_frozen, trial.feed.is_down = is_frozen, True
        began = asyncio.get_running_loop().time()
        state = (await trial.subscriber.start(0.2))["rules"]
        assert asyncio.get_running_loop().time() - began < 2
        expected = (
            ActiveDocument(DocumentOrigin.DATABASE, 6) if has_database else ActiveDocument(DocumentOrigin.SAVED, 5)
        )
        assert state == (expected if has_database or has_saved else ActiveDocument(DocumentOrigin.NOTHING, 0))
        (said,) = [record.getMessage() for record in caplog.records]
        assert said.startswith(
            "started with rules 6 from the database, blocks 2 from the database (the feed: "
            if has_database
            else "started with rules 5 from a saved file, no blocks (the feed: "
            if has_saved
            else "started with no rules, no blocks (the feed: "
        )
        trial.feed.is_frozen = trial.feed.is_down = False
        await trial.feed.publish(rules(7, 7))
        async with trial.running():
            await trial.until(7)
            await trial.feed.looks()
            assert trial.forgotten == [["*"]]  # whatever was read meanwhile may have changed
        assert saved.read("rules") == rules(7, 7)

    asyncio.run(run())


def test_what_this_machine_has_seen_already_is_not_undone(tmp_path: Path) -> None:
    """A feed that has lost its newest document, as after a failover, does not bring older rules back."""

    async def run() -> None:
        saved = SavedDocuments(tmp_path)
        saved.write(rules(8, 8))
        trial = Trial(saved)
        trial.feed.plant(rules(7, 7))
        assert (await trial.subscriber.start())["rules"] == ActiveDocument(DocumentOrigin.SAVED, 8)
        trial = Trial(saved)
        trial.feed.plant(rules(3, 3, "l2"))
        assert (await trial.subscriber.start())["rules"] == ActiveDocument(DocumentOrigin.FEED, 3)

    asyncio.run(run())


def test_a_saved_document_that_is_not_whole_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A process starts without it, and says which file it is."""
    saved = SavedDocuments(tmp_path)
    saved.write(GOOD)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])

    async def run() -> None:
        trial = Trial(saved)
        assert (await trial.subscriber.start())["rules"] == ActiveDocument(DocumentOrigin.NOTHING, 0)
        assert trial.subscriber.refused == {Refusal.DIGEST: 1}
        assert str(file) in caplog.text

    asyncio.run(run())


def test_no_more_than_the_first_problem_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand broken rules are one line."""

    async def run() -> None:
        trial = Trial()
        trial.feed.plant(make("rules", 1, {"rules": [{"name": f"r{n}", "limits": "no"} for n in range(1000)]}))
        await trial.subscriber.start()

    asyncio.run(run())
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "rules 1 refused, none is active: rules[0].limits" in said
    assert said.endswith("(and 999 more)")
