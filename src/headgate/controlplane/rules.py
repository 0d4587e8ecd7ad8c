"""Rules one by one: drafted, published, changed, switched off, rolled back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headgate.controlplane import rule_rows
from headgate.controlplane.changes import announced, nothing
from headgate.controlplane.gc_paused import in_thread
from headgate.controlplane.publisher import refuse_too_many
from headgate.controlplane.rule_plans import DesiredRules, is_rule_set, owner_problem, plan_and_check
from headgate.controlplane.rule_rows import Edit, RuleRecord, apply_edits, id_in, under_name
from headgate.core.parsing.fields import name_problem, unusable
from headgate.core.parsing.rule import rule
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule_data import complete_rule
from headgate.errors import Conflict, InvalidFields, InvalidRules, NotFound, Problem, Stale, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.controlplane.publisher import Publisher
    from headgate.ports import Database, Statements, Writing

__all__ = ["RuleRecord", "RuleState", "RuleVersion", "Rules"]


class RuleState(StrEnum):
    """What a list of rules can be narrowed to."""

    ENFORCED = "enforced"
    SHADOW = "shadow"
    DISABLED = "disabled"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class RuleVersion:
    """What a rule was from a change on."""

    change: int
    at: datetime
    who: str
    data: Mapping[str, Any] | None
    """None is when it was taken away."""


class Rules:
    """The rules, and every change to one of them."""

    def __init__(self, database: Database, publisher: Publisher, announce: Announce = nothing) -> None:
        """`announce` is called after each change that was committed."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def list(
        self,
        *,
        after: str | None = None,
        most: int = 50,
        owner: str | None = None,
        tier: str | None = None,
        endpoint: str | None = None,
        enabled: bool | None = None,
        search: str | None = None,
        state: RuleState | None = None,
    ) -> list[RuleRecord]:
        """Rules by name, from after the name `after`; `tier` and `endpoint` are as a rule's `match` names them.

        `search` is a part of the name, in letters of either case.
        """
        if search is not None and unusable(search):
            return []
        rows = await self._database.rows("rules.list", after, most, owner, tier, endpoint, enabled, search, state)
        return [RuleRecord.of(row) for row in rows]

    async def get(self, name: str) -> RuleRecord:
        """One rule."""
        return await rule_rows.get(self._database, name)

    async def create(self, data: object, who: str, *, draft: bool = False, owner: str | None = None) -> RuleRecord:
        """A new rule, active at once unless it is a draft."""
        made = await in_thread(complete, data)
        name: str = made["name"]
        if owner is not None and (wrong := owner_problem(owner)):
            raise InvalidFields([Problem(("owner",), wrong)])
        async with announced(self._database, self._announce) as writing:
            there = await writing.row("rules.alike", name)
            if there is not None:
                other = "" if there["name"] == name else ", and names differ by more than letter case"
                msg = f"there is a rule {there['name']!r} already{other}"
                raise Conflict(msg)
            await _refuse_taken(writing, id_in(name, made))
            edit = Edit(
                name, "drafted" if draft else "created", None, None if draft else made, made if draft else None, owner
            )
            return await self._apply(writing, who, edit)

    async def replace(
        self, name: str, data: object, who: str, version: int | None = None, *, draft: bool = False
    ) -> RuleRecord:
        """New content for a rule, active at once unless it is a draft."""
        made = await in_thread(complete, data, name)
        async with announced(self._database, self._announce) as writing:
            before = await _expected(writing, name, version)
            _check_id(before, data)
            made = under_name(made, name, before.id)
            edit = Edit(
                name,
                "drafted" if draft else "changed",
                before,
                before.data if draft else made,
                made if draft else before.draft,
                before.owner,
            )
            return await self._apply(writing, who, edit)

    async def rename(self, name: str, new: str, who: str, version: int | None = None) -> RuleRecord:
        """Give a rule another name. Its id stays, and with it counters, own limits, versions, events and counts."""
        if wrong := name_problem(new):
            raise InvalidFields([Problem(("name",), wrong)])
        async with announced(self._database, self._announce) as writing:
            before = await _expected(writing, name, version)
            if new == name:
                return before
            there = await writing.row("rules.alike", new)
            if there is not None and there["name"] != name:
                msg = f"there is a rule {there['name']!r} already"
                raise Conflict(msg)
            data = None if before.data is None else under_name(before.data, new, before.id)
            edit = Edit(new, "renamed", before, data, before.draft_as(new), before.owner, name)
            return await self._apply(writing, who, edit)

    async def delete(self, name: str, who: str, version: int | None = None) -> RuleRecord:
        """Take a rule away and return it; what users and keys have for it is dormant until there is one again."""
        async with announced(self._database, self._announce) as writing:
            before = await _expected(writing, name, version)
            _, change = await apply_edits(writing, who, [Edit(name, "deleted", before, None, None, None)])
            if before.data is not None:
                await self._publisher.publish(writing, who, change)
        return before

    async def set_enabled(self, name: str, enabled: bool, who: str, version: int | None = None) -> RuleRecord:  # noqa: FBT001 (it is what the method is about)
        """Switch a rule on or off; its draft, if there is one, goes with it."""
        async with announced(self._database, self._announce) as writing:
            before = await _expected(writing, name, version)
            if before.data is None:
                msg = f"the rule {name!r} is a draft; publish it first"
                raise Conflict(msg)
            switched = {"enabled": enabled}
            draft = None if before.draft is None else {**before.draft, **switched}
            verb = "enabled" if enabled else "disabled"
            edit = Edit(name, verb, before, {**before.data, **switched}, draft, before.owner)
            return await self._apply(writing, who, edit)

    async def publish(self, names: Sequence[str] | None, who: str) -> Sequence[RuleRecord]:
        """Publish drafts, all of them or none; every draft there is if `names` is None."""
        async with announced(self._database, self._announce) as writing:
            if names is None:
                rules = [RuleRecord.of(row) for row in await writing.rows("rules.drafts")]
            else:
                rules = [await rule_rows.get(writing, name) for name in dict.fromkeys(names)]
            for each in rules:
                if each.draft is None:
                    msg = f"the rule {each.name!r} has no draft to publish"
                    raise Conflict(msg)
            if not rules:
                return []
            edits = [Edit(each.name, "published", each, each.draft, None, each.owner) for each in rules]
            records, change = await apply_edits(writing, who, edits)
            if any(edit.affects_decisions for edit in edits):
                await self._publisher.publish(writing, who, change)
            return [records[each.name] for each in rules]

    async def discard(self, name: str, who: str, version: int | None = None) -> RuleRecord | None:
        """Drop a draft; the rule is deleted if it was never published."""
        async with announced(self._database, self._announce) as writing:
            before = await _expected(writing, name, version)
            if before.draft is None:
                msg = f"the rule {name!r} has no draft to discard"
                raise Conflict(msg)
            edit = Edit(name, "discarded", before, before.data, None, before.owner)
            records, _ = await apply_edits(writing, who, [edit])
            return records.get(name)

    async def history(self, name: str) -> Sequence[RuleVersion]:
        """What the rule has been, the newest first, whatever it was called; also of one that is gone."""
        known = None if name_problem(name) else await self._database.row("rules.known_id", name)
        rows = [] if known is None else await self._database.rows("rules.history", known["id"])
        if not rows:
            await rule_rows.get(self._database, name)
        return [RuleVersion(**row) for row in rows]

    async def rollback(self, name: str, change: int, who: str, version: int | None = None) -> RuleRecord:
        """Make a rule what it was from that change on, but for its name; also one that is gone."""
        async with announced(self._database, self._announce) as writing:
            known = None if name_problem(name) else await writing.row("rules.known_id", name)
            row = None if known is None else await writing.row("rules.version", known["id"], change)
            if known is None or row is None:
                msg = f"change {change} did not touch a rule {short_repr(name)}; its history lists the changes that did"
                raise NotFound(msg)
            if row["data"] is None:
                msg = f"change {change} deleted the rule {name!r}; to go back to that, delete the rule"
                raise Conflict(msg)
            before = await rule_rows.find(writing, name)
            _check_version(name, before, version)
            if before is None:
                await _refuse_taken(writing, known["id"])
            made = under_name(complete({**row["data"], "name": name}, stored=True), name, known["id"])
            draft = None if before is None else before.draft
            owner = (await rule_rows.last_owners(writing, [name])).get(name) if before is None else before.owner
            edit = Edit(name, "rolled_back", before, made, draft, owner)
            return await self._apply(writing, who, edit)

    async def validate(self, data: object) -> Sequence[Problem]:
        """What is wrong with a rule or a rule set, checked as if it were published now. Nothing is stored."""
        try:
            if is_rule_set(data):
                await plan_and_check(self._database, self._publisher, await in_thread(DesiredRules.read, data))
            else:
                await self._check(self._database, await in_thread(complete, data))
        except InvalidRules as error:
            return error.problems
        return []

    async def _apply(self, writing: Writing, who: str, edit: Edit) -> RuleRecord:
        """Store a rule and publish it, or check that it could be; problems name the fields that the caller sent."""
        if edit.before is not None and edit.after == edit.before.contents():
            return edit.before
        records, change = await apply_edits(writing, who, [edit])
        try:
            if edit.affects_decisions:
                await self._publisher.publish(writing, who, change)
            elif edit.draft is not None:
                await self._check(writing, edit.draft)
        except InvalidRules as error:
            raise InvalidRules(of_fields(error.problems, edit.name)) from error
        return records[edit.name]

    async def validate_alone(self, data: object) -> Sequence[Problem]:
        """What is wrong with a rule or a rule set by itself, with the tiers that there are.

        The other rules are not read, for there may be 100,000: of them only names, ids and their number matter. So
        this is quick enough to be asked with every keystroke.
        """
        try:
            if is_rule_set(data):
                await in_thread(parse_rule_set, await self._with_tiers(data))
            else:
                await self._check_alone(await in_thread(complete, data))
        except InvalidRules as error:
            return error.problems
        return []

    async def _with_tiers(self, data: Any) -> dict[str, Any]:  # noqa: ANN401 (as it was sent; the parser says what is wrong)
        stored = await self._publisher.rule_set(self._database, [])
        given = data.get("tiers")
        tiers = {**stored["tiers"], **given} if isinstance(given, dict) else given or stored["tiers"]
        return {**stored, **data, "tiers": tiers}

    async def _check_alone(self, made: Mapping[str, Any]) -> None:
        name, id_ = made["name"], made.get("id") or made["name"]
        alike, same = await self._database.row("rules.alike", name), await self._database.row("rules.with_id", id_)
        if alike is not None and alike["name"] != name:
            raise InvalidRules([Problem(("name",), f"the name {name!r} is taken by the rule {alike['name']!r}")])
        if same is not None and same["name"] != name:
            message = f"the id {id_!r} is that of the rule {same['name']!r}; give this rule an id of its own"
            raise InvalidRules([Problem(("id",), message)])
        beside = await self._database.row("rules.published_beside", name)
        refuse_too_many(1 + (0 if beside is None else beside["many"]))
        await self._check_set(self._database, await self._publisher.rule_set(self._database, [made]), name)

    async def _check(self, statements: Statements, made: Mapping[str, Any]) -> None:
        """Raise `InvalidRules` unless the whole rule set could be active with this rule as given here."""
        whole = await self._publisher.rule_set(statements)
        name = made["name"]
        whole["rules"] = [*(each for each in whole["rules"] if each["name"] != name), made]
        await self._check_set(statements, whole, name)

    async def _check_set(self, statements: Statements, data: Mapping[str, Any], name: str) -> None:
        try:
            await self._publisher.check(statements, data, [name])
        except InvalidRules as error:
            raise InvalidRules(of_fields(error.problems, name)) from error


def complete(data: object, name: str | None = None, *, stored: bool = False) -> dict[str, Any]:
    """A rule by itself, checked and in the form in which it is stored; `name` is what it is called already."""
    problems: list[Problem] = []
    if name is not None and isinstance(data, dict):
        given = data.get("name", name)
        if given != name:
            other = short_repr(given)
            message = (
                f"a rule keeps its name, {name!r}, until it is renamed; to call it {other}, use 'headgate rules rename'"
            )
            raise InvalidRules([Problem(("name",), message)])
        data = {**data, "name": name}
    made = rule(data, (), problems, stored=stored)
    if problems:
        raise InvalidRules(problems)
    return complete_rule(made)


def _check_id(before: RuleRecord, data: object) -> None:
    """Raise `InvalidRules` if other content would make another rule of it."""
    given = data.get("id") if isinstance(data, dict) else None
    if given is not None and given != before.id:
        message = f"the rule {before.name!r} has the id {before.id!r}, and a rule keeps its id; write that id, or none"
        raise InvalidRules([Problem(("id",), message)])


async def _refuse_taken(statements: Statements, id_: str) -> None:
    """Raise `Conflict` if another rule has this id, because it had that name or states it."""
    holder = await statements.row("rules.with_id", id_)
    if holder is not None:
        msg = f"the id {id_!r} is that of the rule {holder['name']!r}; give this rule an id of its own ('id')"
        raise Conflict(msg)


def of_fields(problems: Sequence[Problem], name: str) -> list[Problem]:
    """Problems of the rule that the caller sent, by its fields; those of other rules keep the rule's name."""
    mine = ("rules", name)
    return [Problem(each.path[2:], each.message) if each.path[:2] == mine else each for each in problems]


async def _expected(writing: Writing, name: str, version: int | None) -> RuleRecord:
    """The rule that the caller has read at a version and wants to change."""
    before = await rule_rows.get(writing, name)
    _check_version(name, before, version)
    return before


def _check_version(name: str, before: RuleRecord | None, version: int | None) -> None:
    now = 0 if before is None else before.version
    if version is not None and version != now:
        msg = f"the rule {name!r} has changed since it was read (it is at version {now} now); read it again"
        raise Stale(msg)
