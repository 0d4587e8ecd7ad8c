"""Which of the stored rules a file means: by the id that it states, else by name, else by the name as an id.

A rule that is stored under another name gets the new one, and keeps everything that is kept under its id. A rule
never gets another id: that would be another rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headgate.controlplane.rule_rows import under_name
from headgate.core.rule_difference import Contents
from headgate.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headgate.core.rule import Rule


class Meant(NamedTuple):
    """Desired rules, each with the id that it has or gets."""

    rules: tuple[Rule, ...]
    renamed: Mapping[str, str]
    """New names by the old ones."""


def meant(rules: Iterable[Rule], ids: Mapping[str, str], *, by_id: bool = False) -> Meant:
    """Find out which rules are meant; `ids` are those of all stored rules, by name.

    `by_id`: a rule without an id states its name as the id, as rules that were stored do. What a file says of a name
    is said of the rule that has that name now.
    """
    desired = [*rules]
    holders = {id_: name for name, id_ in ids.items()}
    states = {rule.id for rule in desired} if by_id else set()
    by_name = {
        rule.name for rule in desired if rule.name in ids and _states_none(rule) and ids[rule.name] not in states
    }
    found: list[Rule] = []
    renamed: dict[str, str] = {}
    for rule in desired:
        if rule.name in by_name:
            found.append(replace(rule, id=ids[rule.name]))
            continue
        found.append(rule)
        holder = holders.get(rule.id)
        if holder is not None and holder != rule.name and holder not in by_name:
            renamed[holder] = rule.name
    return Meant(tuple(found), renamed)


def with_new_names(before: Contents, renamed: Mapping[str, str], ids: Mapping[str, str]) -> Contents:
    """What there is, as if it had the new names already."""
    if not renamed:
        return before
    rules = {
        renamed.get(name, name): under_name(data, renamed[name], ids[name]) if name in renamed else data
        for name, data in before.rules.items()
    }
    owners = {renamed.get(name, name): owner for name, owner in before.owners.items()}
    return Contents(rules, before.tiers, before.default_tier, owners)


def in_the_way(rules: Iterable[Rule], ids: Mapping[str, str]) -> list[str]:
    """Stored rules that are none of these by their ids, and have the name of one."""
    desired = [*rules]
    wanted, names = {rule.id for rule in desired}, {rule.name.casefold() for rule in desired}
    return [name for name, id_ in ids.items() if id_ not in wanted and name.casefold() in names]


def _states_none(rule: Rule) -> bool:
    return rule.id == rule.name


def id_problems(found: Meant, ids: Mapping[str, str], gone: Collection[str]) -> list[Problem]:
    """Rules that would get another id, and ids that two rules would have; rules that are `gone` have none."""
    problems: list[Problem] = []
    stay = {name: id_ for name, id_ in ids.items() if name not in found.renamed and name not in gone}
    holders = {id_.casefold(): name for name, id_ in stay.items()}
    for index, rule in enumerate(found.rules):
        stored, holder = stay.get(rule.name), holders.get(rule.id.casefold(), rule.name)
        if stored is not None and stored != rule.id:
            message = f"the rule {rule.name!r} has the id {stored!r}, and a rule keeps its id; write that id, or none"
            problems.append(Problem(("rules", index, "id"), message))
        elif holder.casefold() != rule.name.casefold():  # else the names are the problem
            message = f"the id {rule.id!r} is that of {holder!r}; give this rule an id of its own"
            problems.append(Problem(("rules", index, "id"), message))
    return problems
