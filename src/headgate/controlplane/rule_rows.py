"""Rows of the table of rules: read, and written with the record of each change and the rule's new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.changes import Kind
from headgate.controlplane.publisher import readable
from headgate.controlplane.rule_own_limits import record_active, record_dormant
from headgate.core.ids import new_id
from headgate.core.parsing.fields import name_problem
from headgate.errors import NotFound, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from headgate.ports import Statements, Writing

_PAGE: Final = 2_000


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """A rule as it is stored."""

    name: str
    data: Mapping[str, Any] | None
    """The active rule, complete; None if it was never published."""
    draft: Mapping[str, Any] | None
    """What is being prepared."""
    owner: str | None
    """The file that says what the rule is, if one does."""
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> RuleRecord:
        """The record of a row; a field that was written by hand may hold anything."""
        name = row["name"]
        data, draft = (None if row[part] is None else readable(name, row[part]) for part in ("data", "draft"))
        others = (row[part] for part in ("owner", "version", "created_at", "updated_at", "updated_by"))
        return cls(name, data, draft, *others)

    @property
    def id(self) -> str:
        """What everything else is kept under that belongs to the rule; it stays when the name changes."""
        return id_in(self.name, self.data, self.draft)

    def draft_as(self, name: str) -> Mapping[str, Any] | None:
        """The draft under this name."""
        return None if self.draft is None else under_name(self.draft, name, self.id)

    @property
    def warning(self) -> str | None:
        """What will undo a change that is not made in the file that owns the rule; None if nothing will."""
        if self.owner is None:
            return None
        return (
            f"the file {short_repr(self.owner)} owns the rule {self.name!r}: a change that is made elsewhere is set "
            "back when the file is applied again, and when a service starts with it; make it in the file too"
        )

    def contents(self) -> dict[str, Any]:
        """What can be changed, as it stands in records of changes."""
        return _contents(self.data, self.draft, self.owner)


@dataclass(frozen=True, slots=True)
class Edit:
    """What shall become of a rule. Without data and draft it is taken away."""

    name: str
    verb: str
    before: RuleRecord | None
    data: Mapping[str, Any] | None
    draft: Mapping[str, Any] | None
    owner: str | None
    renamed_from: str | None = None
    """What `before` is called, if that is not its name any more."""

    @property
    def rule_id(self) -> str:
        """The rule's id, which no edit changes."""
        return id_in(self.name, self.data, self.draft) if self.before is None else self.before.id

    @property
    def affects_decisions(self) -> bool:
        """Whether requests are decided by something else than before."""
        return self.data != (self.before and self.before.data)

    @property
    def begins(self) -> bool:
        """Whether the rule is active from now on, and was not before."""
        return self.data is not None and (self.before is None or self.before.data is None)

    @property
    def ends(self) -> bool:
        """Whether the rule was active, and is not from now on."""
        return self.data is None and self.before is not None and self.before.data is not None

    @property
    def after(self) -> dict[str, Any] | None:
        """As it stands in the record of the change."""
        return _contents(self.data, self.draft, self.owner) if self.data or self.draft else None


def id_in(name: str, *contents: Mapping[str, Any] | None) -> str:
    """The id that a rule of this name states in the first of its contents, or its name."""
    ids = (data.get("id") for data in contents if data is not None)
    return next((each for each in ids if isinstance(each, str)), name)


def under_name(data: Mapping[str, Any], name: str, id_: str) -> dict[str, Any]:
    """A rule's content with another name and the same id."""
    rest = {field: value for field, value in data.items() if field != "id"}
    return {**rest, "name": name} if id_ == name else {**rest, "name": name, "id": id_}


def _contents(data: object, draft: object, owner: str | None) -> dict[str, Any]:
    members = {"data": data, "draft": draft, "owner": owner}
    return {name: value for name, value in members.items() if value is not None}


async def find(statements: Statements, name: str) -> RuleRecord | None:
    """A rule, if it is there."""
    row = None if name_problem(name) else await statements.row("rules.get", name)
    return None if row is None else RuleRecord.of(row)


async def get(statements: Statements, name: str) -> RuleRecord:
    """A rule; raises `NotFound`."""
    found = await find(statements, name)
    if found is None:
        msg = f"there is no rule {short_repr(name)}"
        raise NotFound(msg)
    return found


async def last_owners(statements: Statements, names: Sequence[str]) -> dict[str, str]:
    """The files that owned rules that are gone, by the records of their deletion."""
    rows = await statements.rows("rules.last_owners", list(names)) if names else []
    return {row["name"]: row["owner"] for row in rows if row["owner"] is not None}


async def apply_edits(writing: Writing, who: str, edits: Sequence[Edit]) -> tuple[dict[str, RuleRecord], int]:
    """Write all of it; returns the rules that are there afterwards, and the number of the last change."""
    records: dict[str, RuleRecord] = {}
    number = 0
    for some in _some(edits):
        # Before the changes of the rules themselves, the last of which gives a snapshot its number.
        await record_dormant(writing, who, {edit.rule_id: edit.name for edit in some if edit.ends})
        await record_active(writing, who, {edit.rule_id: edit.name for edit in some if edit.begins})
        numbers = await _record(writing, who, some)
        number = max(number, *numbers.values())
        gone = [edit.name for edit in some if edit.after is None]
        if gone:
            await writing.run("rules.delete", gone)
        await _rename(writing, [edit for edit in some if edit.renamed_from is not None])
        stay = [{"name": edit.name} | edit.after for edit in some if edit.after is not None]
        if stay:
            rows = await writing.rows("rules.put", who, stay)
            records |= {row["name"]: RuleRecord.of(row) for row in rows}
        versions = [_version(edit, numbers[edit.name]) for edit in some if edit.affects_decisions]
        if versions:
            await writing.run("rules.add_versions", versions)
    return records, number


async def _rename(writing: Writing, edits: Sequence[Edit]) -> None:
    """Give rules their new names. By way of names that no rule has: some may take each other's."""
    if not edits:
        return
    between = {edit.name: f"renaming.{new_id()}" for edit in edits}
    for steps in (
        [(edit.renamed_from, between[edit.name], edit.rule_id) for edit in edits],
        [(between[edit.name], edit.name, edit.rule_id) for edit in edits],
    ):
        await writing.run("rules.rename", [dict(zip(("name", "new", "id"), step, strict=True)) for step in steps])


async def _record(writing: Writing, who: str, edits: Sequence[Edit]) -> dict[str, int]:
    """The number of each rule's change."""
    rows = []
    for edit in edits:
        row: dict[str, Any] = {"kind": Kind.RULE.value, "name": edit.name, "verb": edit.verb}
        if edit.before is not None:
            row["before"] = edit.before.contents()
        if edit.after is not None:
            row["after"] = edit.after
        rows.append(row)
    return {row["name"]: row["id"] for row in await writing.rows("rules.add_changes", who, rows)}


def _version(edit: Edit, change: int) -> dict[str, Any]:
    return {"rule": edit.rule_id, "change": change} | ({} if edit.data is None else {"data": edit.data})


def _some(edits: Sequence[Edit]) -> Iterator[Sequence[Edit]]:
    """Parts that fit into one statement."""
    for start in range(0, len(edits), _PAGE):
        yield edits[start : start + _PAGE]
