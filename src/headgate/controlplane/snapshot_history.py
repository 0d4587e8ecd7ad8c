"""Every rule set that was active, and the rollback to one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headgate.controlplane.changes import Kind, announced, nothing, record
from headgate.controlplane.documents import read
from headgate.controlplane.gc_paused import in_thread
from headgate.controlplane.publisher import in_pages
from headgate.controlplane.rule_own_limits import holders
from headgate.controlplane.rule_plans import DesiredRules, plan_changes
from headgate.controlplane.rule_renames import in_the_way
from headgate.controlplane.rule_rows import Edit, RuleRecord, apply_edits, last_owners
from headgate.controlplane.rule_sets import write
from headgate.core.parsing.rule_set import parse_part
from headgate.core.rule_data import complete_rule
from headgate.errors import NotFound
from headgate.ports import EVERYTHING, RULES, Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.controlplane.publisher import Published, Publisher
    from headgate.core.rule import RuleSet
    from headgate.core.rule_difference import Difference, OwnLimitHolders
    from headgate.ports import Database, Statements, Writing


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A rule set that was published."""

    number: int
    at: datetime
    who: str
    rules: int
    digest: str
    """In hexadecimal digits."""


class SnapshotHistory:
    """The published rule sets; a thousand of them are kept."""

    def __init__(self, database: Database, publisher: Publisher, announce: Announce = nothing) -> None:
        """`announce` is called after each change that was committed."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def list(self, most: int = 50, below: int | None = None) -> list[SnapshotRecord]:
        """Snapshots, the newest first, older than the number `below`."""
        return [_record_of(row) for row in await self._database.rows("snapshots.list", below, most)]

    async def get(self, number: int) -> dict[str, Any]:
        """The rules and tiers of a snapshot, as `parse_rule_set` takes them."""
        return await _contents(self._database, number)

    async def current(self) -> SnapshotRecord | None:
        """The newest; None before anything was published."""
        row = await self._database.row("snapshots.list", None, 1)
        return None if row is None else _record_of(row)

    async def rollback(self, number: int, who: str) -> Difference:
        """Make all rules and tiers what they were then. Drafts stay; rules that were deleted have their owner again."""
        async with announced(self._database, self._announce) as writing:
            then = await in_thread(parse_part, await _contents(writing, number), stored=True)
            gone, dormant, owners = await _make_room(writing, who, then)
            desired = DesiredRules(then, frozenset({"rules", "tiers"}), delete=True, by_id=True)
            plan = await plan_changes(writing, desired)
            owners = await last_owners(writing, plan.difference.added) | owners
            plan = replace(plan, after=replace(plan.after, owners={**owners, **plan.after.owners}))
            await write(writing, who, plan, self._publisher, "rolled_back")
            done = plan.difference
        return replace(done, removed=(*gone, *done.removed), dormant=(*dormant, *done.dormant))

    async def publish(self, who: str) -> Published:
        """Publish what the tables say, after they were edited by hand."""
        async with announced(self._database, self._announce) as writing:
            # What people write by hand is brought to the form in which all else is stored.
            rule_set = await self._publisher.check(writing, await self._publisher.rule_set(writing), [EVERYTHING])
            usual = await in_thread(lambda: {rule.name: complete_rule(rule) for rule in rule_set.rules})
            edits = [
                Edit(one.name, "published", one, usual[one.name], one.draft, one.owner)
                for one in map(RuleRecord.of, await in_pages(writing, "rule_sets.rows"))
                if one.data is not None and one.data != usual[one.name]
            ]
            await apply_edits(writing, who, edits)
            change = await record(writing, who, Kind.RULE, EVERYTHING, "published", None, None)
            await writing.run("rules.catch_up", change)
            return await self._publisher.publish(writing, who, change)


async def _make_room(
    writing: Writing, who: str, then: RuleSet
) -> tuple[list[str], list[OwnLimitHolders], dict[str, str]]:
    """Take away the rules that have a name of another one then: one name cannot be of two, even for a moment.

    Returns their names, whose limits become dormant with them, and who owned the rules that had the names before.
    """
    rows = await in_pages(writing, "rule_sets.rows")
    gone = await in_thread(_in_the_way, then, rows)
    if not gone:
        return [], [], {}
    names = [record.name for record in gone]
    own = await holders(writing, {record.id: record.name for record in gone})
    owners = await last_owners(writing, names)
    await apply_edits(writing, who, [Edit(each.name, "rolled_back", each, None, None, None) for each in gone])
    return names, [own[name] for name in names if name in own], owners


def _in_the_way(then: RuleSet, rows: Iterable[Mapping[str, Any]]) -> list[RuleRecord]:
    records = {row["name"]: RuleRecord.of(row) for row in rows}
    ids = {name: record.id for name, record in records.items()}
    return [records[name] for name in in_the_way(then.rules, ids) if records[name].data is not None]


async def _contents(statements: Statements, number: int) -> dict[str, Any]:
    row = await statements.row("snapshots.get", number)
    if row is None:
        msg = f"there is no snapshot {number}; the list of snapshots has those that are kept"
        raise NotFound(msg)
    data: dict[str, Any] = await in_thread(read, Document(RULES, number, row["body"], row["digest"]))
    return data


def _record_of(row: Mapping[str, Any]) -> SnapshotRecord:
    return SnapshotRecord(row["number"], row["at"], row["who"], row["rules"], row["digest"].hex())
