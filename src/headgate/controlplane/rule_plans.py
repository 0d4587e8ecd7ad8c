"""From the desired rules and tiers to the changes that have to be written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.gc_paused import in_thread
from headgate.controlplane.publisher import in_pages, refuse_too_many, tier_data
from headgate.controlplane.rule_own_limits import holders
from headgate.controlplane.rule_renames import id_problems, meant, with_new_names
from headgate.controlplane.rule_rows import RuleRecord, id_in
from headgate.core.parsing.fields import unusable
from headgate.core.parsing.rule_set import parse_part
from headgate.core.rule_data import complete_rule, complete_tier
from headgate.core.rule_difference import Contents, Difference, difference
from headgate.errors import Conflict, InvalidFields, InvalidRules, Problem, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.controlplane.publisher import Publisher
    from headgate.core.rule import RuleSet
    from headgate.ports import Statements

_MEMBERS: Final = frozenset({"rules", "tiers", "default_tier", "overrides"})
_MAX_LENGTH: Final = 255
_NAMED: Final = 5
_SHARE: Final = 10
"""A sync deletes one rule in so many without being told the number, at least one and never all."""


def is_rule_set(data: object) -> bool:
    """Whether this is meant as a whole rule set, and not as one rule."""
    return isinstance(data, list | tuple) or (isinstance(data, dict) and not _MEMBERS.isdisjoint(data))


def owner_problem(owner: str) -> str | None:
    """What is wrong with the name of a file that owns rules, or None."""
    if not 0 < len(owner) <= _MAX_LENGTH:
        return f"the owner of a rule is named by 1 to {_MAX_LENGTH} characters, not {len(owner)}"
    return unusable(owner)


@dataclass(frozen=True, slots=True)
class DesiredRules:
    """What the rules and tiers shall be, as far as the caller names them."""

    part: RuleSet
    covers: frozenset[str]
    """``rules``, ``tiers`` or both."""
    delete: bool = False
    """Whether what is not in it shall go."""
    owner: str | None = None
    take_over: bool = False
    formerly: frozenset[str] = frozenset()
    """Other names of the same owner, whose rules are its own too."""
    by_id: bool = False
    """Whether rules are known by their ids alone, also those that state none."""

    @classmethod
    def read(
        cls, data: object, *, delete: bool = False, owner: str | None = None, take_over: bool = False
    ) -> DesiredRules:
        """From what a file says; raises `InvalidRules` with everything that is wrong with that."""
        if owner is not None and (wrong := owner_problem(owner)):
            raise InvalidFields([Problem(("owner",), wrong)])
        covers = {"rules"} if isinstance(data, list | tuple) else set()
        if isinstance(data, dict):
            covers = {name for name in ("rules", "tiers") if data.get(name) is not None}
            if data.get("overrides"):
                message = "overrides are kept with users and keys; set them there, and leave them out here"
                raise InvalidRules([Problem(("overrides",), message)])
        rules = data.get("rules") if isinstance(data, dict) else data
        if isinstance(rules, list | tuple):  # before they are read, which would take as long as there are rules
            refuse_too_many(len(rules))
        return cls(parse_part(data), frozenset(covers), delete, owner, take_over)

    def after(self, before: Contents) -> Contents:
        """What there would be."""
        rules: Mapping[str, Mapping[str, Any]] = before.rules
        tiers: Mapping[str, Mapping[str, Any]] = before.tiers
        if self.delete and "rules" in self.covers:
            rules = {name: data for name, data in before.rules.items() if self._is_of_others(before.owners.get(name))}
        if self.delete and "tiers" in self.covers:
            tiers = {}
        tiers = {**tiers, **{name: complete_tier(tier) for name, tier in self.part.tiers.items()}}
        default = self.part.default_tier
        if default is None:
            default = before.default_tier if before.default_tier in tiers else next(iter(self.part.tiers), None)
        owned = {} if self.owner is None else dict.fromkeys([rule.name for rule in self.part.rules], self.owner)
        return Contents(
            {**rules, **{rule.name: complete_rule(rule) for rule in self.part.rules}},
            tiers,
            default,
            {**before.owners, **owned},
        )

    def covered(self, before: Contents) -> tuple[int, int]:
        """How many rules and tiers there are that it could delete."""
        mine = sum(not self._is_of_others(before.owners.get(name)) for name in before.rules)
        return mine if "rules" in self.covers else 0, len(before.tiers) if "tiers" in self.covers else 0

    def _is_of_others(self, owner: str | None) -> bool:
        return self.owner is not None and owner not in {None, self.owner}

    def located(self, problems: Iterable[Problem]) -> list[Problem]:
        """Problems of the rules that it names, at the index that each of them has in it."""
        indexes = {rule.name: index for index, rule in enumerate(self.part.rules)}
        return [
            Problem(("rules", indexes[each.path[1]], *each.path[2:]), each.message)
            if each.path[:1] == ("rules",) and each.path[1:2] and each.path[1] in indexes
            else each
            for each in problems
        ]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to get from what there is to what is wanted."""

    before: Contents
    after: Contents
    difference: Difference
    records: Mapping[str, RuleRecord]
    """All rules that are stored, drafts too, by the names that they get."""

    def rule_set(self) -> dict[str, Any]:
        """The rule set that would be active, as `parse_rule_set` takes it."""
        rules = [dict(data) for data in self.after.rules.values()]
        return {"default_tier": self.after.default_tier, "tiers": self.after.tiers, "rules": rules}


async def plan_changes(statements: Statements, desired: DesiredRules) -> Plan:
    """Compare the desired rules with the tables. Raises `Conflict` and `InvalidRules` where they cannot be applied."""
    rules, tiers = await in_pages(statements, "rule_sets.rows"), await statements.rows("rule_sets.tiers")
    plan = await in_thread(_compared, desired, rules, tiers)
    found = plan.difference
    await _check_tiers(statements, found.tiers_removed)
    removed = {plan.records[name].id: name for name in found.removed}
    own = await holders(statements, removed | {id_in(name, plan.after.rules[name]): name for name in found.added})
    dormant, returning = (tuple(own[name] for name in names if name in own) for names in (found.removed, found.added))
    return replace(plan, difference=replace(found, dormant=dormant, returning=returning))


def _compared(desired: DesiredRules, rules: Iterable[Mapping[str, Any]], tiers: Sequence[Mapping[str, Any]]) -> Plan:
    records = {row["name"]: RuleRecord.of(row) for row in rules}
    ids = {name: record.id for name, record in records.items()}
    found_rules = meant(desired.part.rules, ids, by_id=desired.by_id)
    renamed = found_rules.renamed
    desired = replace(desired, part=replace(desired.part, rules=found_rules.rules))
    before = Contents(
        {name: record.data for name, record in records.items() if record.data is not None},
        {row["name"]: tier_data(row) for row in tiers},
        next((row["name"] for row in tiers if row["is_default"]), None),
        {name: record.owner for name, record in records.items() if record.owner is not None},
    )
    before = with_new_names(before, renamed, ids)
    records = {renamed.get(name, name): record for name, record in records.items()}
    after = desired.after(before)
    found = difference(before, after, renamed)
    if desired.delete:
        found = replace(found, delete_at_most=_needed_number(found, desired.covered(before)))
    plan = Plan(before, after, replace(found, set_back=_set_back(desired, found, before)), records)
    if problems := [
        *id_problems(found_rules, ids, set(found.removed)),
        *_name_problems(desired, plan),
        *_tier_problems(after),
    ]:
        raise InvalidRules(problems)
    _check_owners(desired, before)
    return plan


def _needed_number(found: Difference, covered: tuple[int, int]) -> int | None:
    """How many deletions a sync has to be told to expect; None if it deletes no more than a small share.

    A wrong file, or half of one, deletes most of the rules or all of them. Everyday work deletes one, or a few of many.
    """
    gone = (len(found.removed), len(found.tiers_removed))
    is_small = all(
        not many or many <= min(max(1, there // _SHARE), there - 1) for many, there in zip(gone, covered, strict=True)
    )
    return None if is_small else sum(gone)


def check_deletions(desired: DesiredRules, plan: Plan, delete_at_most: int | None) -> None:
    """Raise `Conflict` if a sync would delete more than it may."""
    found = plan.difference
    gone = len(found.removed) + len(found.tiers_removed)
    if found.delete_at_most is None if delete_at_most is None else gone <= delete_at_most:
        return
    rules, tiers = desired.covered(plan.before)
    parts = []
    if found.removed:
        parts.append(f"{len(found.removed)} of {rules} rules ({_some(found.removed)})")
    if found.tiers_removed:
        parts.append(f"{len(found.tiers_removed)} of {tiers} tiers ({_some(found.tiers_removed)})")
    msg = (
        f"this would delete {' and '.join(parts)}; if that is meant, say so with --delete-at-most {gone} "
        f"(delete_at_most={gone} in the API), and if not, see whether the file and its owner are the right ones"
    )
    raise Conflict(msg)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _set_back(desired: DesiredRules, found: Difference, before: Contents) -> tuple[tuple[str, str], ...]:
    """Rules that change under a file that knows nothing of it: it owns them, and goes on to."""
    if desired.owner is not None:
        return ()  # then those of others stay as they are, or are taken over
    renamed = (change.after for change in found.renamed)
    names = dict.fromkeys([*(change.name for change in found.changed), *found.removed, *renamed])
    return tuple((name, before.owners[name]) for name in names if name in before.owners)


async def plan_and_check(statements: Statements, publisher: Publisher, desired: DesiredRules) -> Plan:
    """Plan, and check that the result could be active."""
    plan = await plan_changes(statements, desired)
    if plan.difference.affects_decisions:
        found = plan.difference
        names = [*found.added, *(each.name for each in found.changed), *(each.after for each in found.renamed)]
        try:
            await publisher.check(statements, plan.rule_set(), names)
        except InvalidRules as error:
            raise InvalidRules(desired.located(error.problems)) from error
    return plan


def _name_problems(desired: DesiredRules, plan: Plan) -> list[Problem]:
    """Names of rules that differ from others that stay only by letter case."""
    gone = set(plan.difference.removed)
    there = {name.casefold(): name for name in plan.records if name not in gone}
    return [
        Problem(("rules", index, "name"), f"there is a rule {there[rule.name.casefold()]!r}; only letter case differs")
        for index, rule in enumerate(desired.part.rules)
        if there.get(rule.name.casefold(), rule.name) != rule.name
    ]


def _tier_problems(after: Contents) -> list[Problem]:
    """What can be said of tiers in a file, and not in a table."""
    problems: list[Problem] = []
    if after.default_tier is not None and after.default_tier not in after.tiers:
        problems.append(Problem(("default_tier",), f"there is no tier {short_repr(after.default_tier)}"))
    seen: dict[str, str] = {}
    for name, data in after.tiers.items():
        first = seen.setdefault(name.casefold(), name)
        if first != name:
            problems.append(Problem(("tiers", name), f"there is a tier {first!r}; only letter case differs"))
        if len(data.get("display_name", "")) > _MAX_LENGTH:
            message = f"a display name has at most {_MAX_LENGTH} characters"
            problems.append(Problem(("tiers", name, "display_name"), message))
    return problems


def _check_owners(desired: DesiredRules, before: Contents) -> None:
    """Raise `Conflict` if another file's rules would change, unless the caller takes them over."""
    if desired.owner is None or desired.take_over:
        return
    others = {
        rule.name: before.owners[rule.name]
        for rule in desired.part.rules
        if before.owners.get(rule.name, desired.owner) not in {desired.owner, *desired.formerly}
    }
    if others:
        named = ", ".join(f"{name} ({short_repr(owner)})" for name, owner in list(others.items())[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        msg = (
            f"other files own these rules: {named}{more}; change them there, name that owner (--owner), or take them "
            "over (--take-over)"
        )
        raise Conflict(msg)


async def _check_tiers(statements: Statements, removed: Sequence[str]) -> None:
    """Raise `Conflict` if users or keys are on a tier that would be removed."""
    rows = await statements.rows("rule_sets.tier_users", list(removed)) if removed else []
    for row in rows:
        are = f"{row['many']} {row['kind']} are" if row["many"] > 1 else f"a {row['kind'].removesuffix('s')} is"
        msg = f"the tier {row['tier']!r} cannot be deleted: {are} on it ({short_repr(row['example'])}, for example)"
        raise Conflict(msg)
