"""Rules as code: what a file would change, and changing it.

Carrying out a plan: rules and tiers written, each with the record of its change, and one snapshot of it all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.controlplane.changes import Kind, announced, nothing
from headgate.controlplane.gc_paused import in_thread
from headgate.controlplane.publisher import parsed
from headgate.controlplane.rule_plans import DesiredRules, check_deletions, plan_and_check, plan_changes
from headgate.controlplane.rule_rows import Edit, apply_edits
from headgate.core.rule_data import brief_rule_set
from headgate.core.rule_difference import Difference
from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.controlplane.changes import Announce
    from headgate.controlplane.publisher import Published, Publisher
    from headgate.controlplane.rule_plans import Plan
    from headgate.core.rule_difference import Contents
    from headgate.ports import Database, Writing

__all__ = ["Difference", "RuleSetChanges"]


class RuleSetChanges:
    """Whole rule sets, from files and back."""

    def __init__(self, database: Database, publisher: Publisher, announce: Announce = nothing) -> None:
        """`announce` is called after each change that was committed."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def dump(self) -> dict[str, Any]:
        """The active rules and tiers as the data of a rules file; the same rules always give the same data."""
        data = await self._publisher.rule_set(self._database)
        return await in_thread(lambda: brief_rule_set(parsed(data)))

    async def plan(
        self, data: object, *, delete: bool, owner: str | None = None, take_over: bool = False
    ) -> Difference:
        """What `apply` would change, or `sync` with `delete`; raises what they would raise."""
        desired = await in_thread(DesiredRules.read, data, delete=delete, owner=owner, take_over=take_over)
        return (await plan_and_check(self._database, self._publisher, desired)).difference

    async def apply(
        self,
        data: object,
        who: str,
        owner: str | None = None,
        *,
        take_over: bool = False,
        formerly: frozenset[str] = frozenset(),
    ) -> Difference:
        """Add and change what `data` names, and delete nothing. `owner` is the file it comes from.

        A rule that another file owns is a `Conflict`, unless it is taken over; `formerly` are names that the
        same file had as an owner.
        """
        desired = await in_thread(DesiredRules.read, data, owner=owner, take_over=take_over)
        return await self._fulfil(replace(desired, formerly=formerly), who)

    async def sync(
        self,
        data: object,
        who: str,
        owner: str | None = None,
        *,
        take_over: bool = False,
        delete_at_most: int | None = None,
    ) -> Difference:
        """`apply`, and delete what `data` does not name.

        Rules of other files stay if there is an `owner`. A rule set without `tiers` leaves
        all tiers, and one without `rules` all rules. More deletions than `delete_at_most` are
        a `Conflict`; without it, more than a tenth of what could be deleted.
        """
        desired = await in_thread(DesiredRules.read, data, delete=True, owner=owner, take_over=take_over)
        return await self._fulfil(desired, who, delete_at_most)

    async def _fulfil(self, desired: DesiredRules, who: str, delete_at_most: int | None = None) -> Difference:
        async with announced(self._database, self._announce) as writing:
            plan = await plan_changes(writing, desired)
            try:
                await write(writing, who, plan, self._publisher)
            except InvalidRules as error:
                raise InvalidRules(desired.located(error.problems)) from error
            # Last, because what is wrong with a file is said first; nothing of it is kept if this raises.
            check_deletions(desired, plan, delete_at_most)
        return plan.difference


async def write(
    writing: Writing, who: str, plan: Plan, publisher: Publisher, verb: str | None = None
) -> Published | None:
    """Write what differs, and publish it; nothing is written if nothing differs.

    The records say created, changed and deleted, or `verb` of everything.
    """
    if plan.difference.is_empty:
        return None
    number = await _write_tiers(writing, who, plan, verb)
    _, change = await apply_edits(writing, who, _edits(plan, verb))
    return await publisher.publish(writing, who, max(number, change)) if plan.difference.affects_decisions else None


def _edits(plan: Plan, verb: str | None) -> list[Edit]:
    done = plan.difference
    old_names = {change.after: change.before for change in done.renamed}
    changed = dict.fromkeys([*old_names, *(change.name for change in (*done.changed, *done.owners))])
    added = dict.fromkeys(done.added)
    edits = [Edit(name, verb or "deleted", plan.records[name], None, None, None) for name in done.removed]
    for name in (*changed, *added):
        before = plan.records.get(name)
        old = old_names.get(name)
        said = verb or ("created" if name in added else "changed" if old is None else "renamed")
        draft = None if before is None else before.draft_as(name)
        edits.append(Edit(name, said, before, plan.after.rules[name], draft, plan.after.owners.get(name), old))
    return edits


async def _write_tiers(writing: Writing, who: str, plan: Plan, verb: str | None) -> int:
    """Write the tiers, those that go first, and the records of all; returns the number of the last."""
    before, after = _rows(plan.before), _rows(plan.after)
    differ = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not differ:
        return 0
    await writing.run("rule_sets.delete_tiers", list(plan.difference.tiers_removed))
    await writing.run("rule_sets.unset_default")
    await writing.run("rule_sets.put_tiers", [after[name] for name in differ if name in after])
    records = []
    for name in differ:
        said = verb or ("created" if name not in before else "changed" if name in after else "deleted")
        row: dict[str, Any] = {"kind": Kind.TIER.value, "name": name, "verb": said}
        records.append(row | _only(before=before.get(name), after=after.get(name)))
    numbers: list[int] = [row["id"] for row in await writing.rows("rules.add_changes", who, records)]
    return max(numbers)


def _only(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}


def _rows(contents: Contents) -> Mapping[str, dict[str, Any]]:
    """Tiers as they stand in the table and in records of changes."""
    return {
        name: {"name": name, "display_name": None, **data, "is_default": name == contents.default_tier}
        for name, data in contents.tiers.items()
    }
