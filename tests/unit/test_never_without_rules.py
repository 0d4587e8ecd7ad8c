"""A process never decides by no rules while there are some it could have, nor by an empty set that is unpublished."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.unit.controlplane.subscriber_trial import SOON, Feed, Stored, rules

from headgate import Limiter, NoRules, Request
from headgate.adapters import zones
from headgate.adapters.rules_file import RulesFile
from headgate.adapters.saved_documents import SavedDocuments
from headgate.controlplane.documents import NO_RULES, make
from headgate.controlplane.file_rules import FileRules
from headgate.controlplane.subscriber import DocumentOrigin, Subscriber
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane import snapshots
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from pathlib import Path

FILE = {
    "none": None,
    "good": "rules: [{name: r, limits: 1/hour}]",
    "broken": "rules: [{name: r}]",
    "empty": "rules: []",
}
SAVED = ("none", "good", "torn")
SERVER = ("unavailable", "nothing published", "rules")
REQUEST = Request(user="u1")


class World(NamedTuple):
    """What a process finds when it starts."""

    file: str
    saved: str
    database: str
    feed: str

    @property
    def origin(self) -> DocumentOrigin:
        """Where its rules must come from."""
        if self.feed == "rules":
            return DocumentOrigin.FEED
        if self.database == "rules":
            return DocumentOrigin.DATABASE
        if self.saved == "good":
            return DocumentOrigin.SAVED
        if self.file in {"good", "empty"}:
            return DocumentOrigin.FILE
        if self.database == "nothing published" and self.file == "none":
            return DocumentOrigin.DATABASE
        return DocumentOrigin.NOTHING

    @property
    def limit(self) -> int | None:
        """What must be enforced: each source has another limit; None is a rule set that is known and empty."""
        if self.origin is DocumentOrigin.DATABASE and self.database == "nothing published":
            return None
        if self.origin is DocumentOrigin.FILE and self.file == "empty":
            return None
        return {DocumentOrigin.FEED: 4, DocumentOrigin.DATABASE: 3, DocumentOrigin.SAVED: 2, DocumentOrigin.FILE: 1}[
            self.origin
        ]


class Process:
    """A process that has just started, in all that matters here."""

    def __init__(self, world: World, folder: Path, *, admits: bool = False) -> None:
        self.limiter = Limiter.open()
        self.limiter.snapshots.await_rules(admits=admits)
        self.feed, self.database = Feed(), Stored()
        self.file = folder / "rules.yaml"
        self._saved = SavedDocuments(folder / "saved")
        self._prepare(world)
        self.subscriber = Subscriber(
            self.feed,
            {"rules": self._take, "blocks": lambda _data, _number: None},
            lambda _names: None,
            self._saved,
            self.database,
            empty={"rules": NO_RULES} if world.file == "none" else {},
            every=SOON,
        )
        self.file_rules = None if world.file == "none" else FileRules(RulesFile(self.file), self.subscriber.applier)

    def _prepare(self, world: World) -> None:
        if (text := FILE[world.file]) is not None:
            self.file.write_text(text)
        if world.saved != "none":
            self._saved.write(rules(2, 2))
        if world.saved == "torn":
            (kept,) = self._saved._folder.iterdir()
            kept.write_bytes(kept.read_bytes()[:-1])
        self.database.is_down = world.database == "unavailable"
        if world.database == "rules":
            self.database.publish(rules(3, 3))
        self.feed.is_down = world.feed == "unavailable"
        if world.feed == "rules":
            self.feed.plant(rules(4, 4))

    def _take(self, data: object, number: int) -> None:
        self.limiter.snapshots.publish(parse_rule_set(data, zones.zone), number)

    async def start(self) -> DocumentOrigin:
        """Start as `headgate serve` does."""
        await self.subscriber.start(0.01)
        if self.file_rules is not None:
            await self.file_rules.look()
        return self.origin()

    def origin(self) -> DocumentOrigin:
        """Where its rules came from."""
        return self.subscriber.state["rules"].origin


WORLDS = [
    World(file, saved, database, feed) for file in FILE for saved in SAVED for database in SERVER for feed in SERVER
]


@pytest.mark.parametrize("world", WORLDS, ids=" / ".join)
def test_every_start_decides_by_the_best_rules_there_are_or_not_at_all(world: World, tmp_path: Path) -> None:
    """Published rules come before saved ones and these before the file; unknown rules deny, empty ones exempt."""

    async def run() -> None:
        process = Process(world, tmp_path)
        assert await process.start() is world.origin
        assert process.limiter.snapshots.is_known is (world.origin is not DocumentOrigin.NOTHING)
        if world.origin is DocumentOrigin.NOTHING:
            with pytest.raises(NoRules):
                await process.limiter.check(REQUEST)
            with pytest.raises(NoRules):
                await process.limiter.peek(REQUEST)
        else:
            verdict = await process.limiter.check(REQUEST)
            assert (verdict.allowed, verdict.limit) == (True, world.limit)
            assert (verdict.source == "exempt") is (world.limit is None)

    asyncio.run(run())


NOTHING = World("none", "none", "unavailable", "unavailable")
ON_FILE = World("good", "none", "unavailable", "unavailable")


def test_without_rules_requests_pass_where_that_was_chosen_and_are_marked(tmp_path: Path) -> None:
    """The verdict is exempt by a policy of that name, of snapshot 0; it is no known rule set."""

    async def run() -> None:
        process = Process(NOTHING, tmp_path, admits=True)
        assert await process.start() is DocumentOrigin.NOTHING
        assert not process.limiter.snapshots.is_known
        said = (await process.limiter.check(REQUEST)).as_dict()
        assert {name: said[name] for name in ("allowed", "source", "policy", "snapshot")} == {
            "allowed": True,
            "source": "exempt",
            "policy": snapshots.NO_RULES,
            "snapshot": 0,
        }

    asyncio.run(run())


def test_bare_keys_need_no_rules(tmp_path: Path) -> None:
    """A key with a limit of its own is decided whatever is known of rules."""

    async def run() -> None:
        process = Process(NOTHING, tmp_path)
        await process.start()
        assert (await process.limiter.hit("login:u1", "1/hour")).allowed
        assert not (await process.limiter.hit("login:u1", "1/hour")).allowed

    asyncio.run(run())


def test_the_database_takes_over_from_the_file_once_it_has_rules(tmp_path: Path) -> None:
    """Until then it may answer as often as it likes that nothing was published."""

    async def run() -> None:
        process = Process(ON_FILE, tmp_path)
        assert await process.start() is DocumentOrigin.FILE
        process.database.is_down = False
        await process.subscriber._ask_database()
        assert process.origin() is DocumentOrigin.FILE
        process.database.publish(rules(3, 3))
        await process.subscriber._ask_database()
        assert process.origin() is DocumentOrigin.DATABASE
        process.file.write_text("rules: []")
        await process.file_rules.look()  # type: ignore[union-attr] # it has a file
        assert (await process.limiter.check(REQUEST)).limit == 3

    asyncio.run(run())


@pytest.mark.parametrize(("database", "level"), [("nothing published", "INFO"), ("unavailable", "WARNING")])
def test_the_file_is_no_worry_while_a_new_database_gets_its_rules(
    database: str, level: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that answers and has no rules yet is no outage; one that does not answer is."""

    async def run() -> None:
        process = Process(ON_FILE._replace(database=database), tmp_path)
        process.database.publish(make("blocks", 1, [], "l1"))
        assert await process.start() is DocumentOrigin.FILE

    with caplog.at_level("INFO", "headgate"):
        asyncio.run(run())
    assert [each.levelname for each in caplog.records if " active, until the database " in each.message] == [level]


def test_a_file_that_changes_is_read_again_and_the_last_good_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as nothing else is known; broken or removed it changes nothing, and each is said once."""

    async def run() -> None:
        process = Process(ON_FILE, tmp_path)
        await process.start()
        look, limit = process.file_rules.look, process.limiter.snapshots  # type: ignore[union-attr] # it has a file
        process.file.write_text("rules: [{name: r, limits: 55/hour}]")
        await look()
        assert (await process.limiter.peek(REQUEST)).limit == 55
        process.file.write_text("rules: [{name: r}]")
        for _ in range(3):
            await look()
        process.file.unlink()
        for _ in range(3):
            await look()
        assert (await process.limiter.peek(REQUEST)).limit == 55
        assert limit.is_known
        refused = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [sentence.partition(" refused, ")[2].partition(":")[0] for sentence in refused] == [
            "the active rules stay",
            "the active rules stay",
        ]
        process.file.write_text("rules: [{name: r, limits: 77/hour}]")
        await look()
        assert (await process.limiter.peek(REQUEST)).limit == 77

    asyncio.run(run())


def test_a_file_that_is_put_right_ends_the_time_without_rules(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken file is complained about once and looked at again."""

    async def run() -> None:
        process = Process(NOTHING._replace(file="broken"), tmp_path)
        assert await process.start() is DocumentOrigin.NOTHING
        for _ in range(3):
            await process.file_rules.look()  # type: ignore[union-attr] # it has a file
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
        process.file.write_text("rules: [{name: r, limits: 1/hour}]")
        await process.file_rules.look()  # type: ignore[union-attr] # as above
        assert process.origin() is DocumentOrigin.FILE
        assert "until the database or redis answers" in caplog.text

    asyncio.run(run())


def test_blocks_hold_without_rules(tmp_path: Path) -> None:
    """A blocked caller is told so, and all others that nothing can be decided."""
    from headgate.core.blocklist import BlockList  # noqa: PLC0415 (only here)

    async def run() -> None:
        process = Process(NOTHING, tmp_path)
        await process.start()
        process.limiter.snapshots.publish_blocks(BlockList([{"id": "b1", "user": "u1", "until": None}]))
        assert not (await process.limiter.check(REQUEST)).allowed
        with pytest.raises(NoRules):
            await process.limiter.check(Request(user="u2"))

    asyncio.run(run())


def test_the_error_says_what_is_missing_and_when_to_try_again() -> None:
    """It is one of headgate's own, with a sentence for callers."""
    error = NoRules()
    assert isinstance(error, HeadgateError)
    assert error.retry_after == 1.0
    assert str(error).startswith("no rules are known yet")


def test_a_document_replaces_what_was_held_and_never_the_other_way_round() -> None:
    """What comes from a file gives way to any published rules, and cannot replace them."""

    async def run() -> None:
        taken: list[Any] = []
        subscriber = Subscriber(Feed(), {"rules": lambda data, _number: taken.append(data)}, lambda _names: None)
        await subscriber.applier.hold("rules", "a file", DocumentOrigin.FILE)
        await subscriber.applier.take("rules", make("rules", 1, "published", "l1"), DocumentOrigin.FEED)
        await subscriber.applier.hold("rules", "a file", DocumentOrigin.FILE)
        assert taken == ["a file", "published"]

    asyncio.run(run())
