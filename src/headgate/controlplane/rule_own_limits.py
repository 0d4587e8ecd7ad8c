"""Limits that users and keys have in place of a rule's: dormant when the rule goes, active when it is there again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headgate.controlplane.changes import Kind
from headgate.core.rule_difference import OwnLimitHolders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from headgate.ports import Statements, Writing

_NAMED: Final = 5
_PAGE: Final = 1_000
"""Limits in one record of a change, so that none is too large to be read."""
_NO_ID: Final = UUID(int=0)


async def holders(statements: Statements, rules: Mapping[str, str]) -> dict[str, OwnLimitHolders]:
    """Who has limits in place of these rules' own, by name of those that have such; `rules` are names by id."""
    if not rules:
        return {}
    users = {row["rule"]: row for row in await statements.rows("rule_sets.override_holders", list(rules), _NAMED)}
    keys = {row["rule"]: row for row in await statements.rows("rule_sets.limited_keys", list(rules), _NAMED)}
    return {rules[id_]: OwnLimitHolders(rules[id_], *_many(users, id_), *_many(keys, id_)) for id_ in {**users, **keys}}


def _many(rows: Mapping[str, Mapping[str, Any]], rule: str) -> tuple[int, tuple[str, ...]]:
    row = rows.get(rule)
    return (0, ()) if row is None else (row["many"], tuple(row["some"]))


async def record_dormant(writing: Writing, who: str, rules: Mapping[str, str]) -> None:
    """Record by value the limits that go to sleep with these rules, which are names by id."""
    await _record(writing, who, rules, "overrides_dormant", "before")


async def record_active(writing: Writing, who: str, rules: Mapping[str, str]) -> None:
    """Record by value the limits that are active again with these rules, which are names by id."""
    await _record(writing, who, rules, "overrides_active", "after")


async def _record(writing: Writing, who: str, rules: Mapping[str, str], verb: str, side: str) -> None:
    """Processes need not be told: they know a user's dormant limits too, and use them once there is the rule."""
    if not rules:
        return
    async for rule, part in _by_value(writing, list(rules)):
        row = {"kind": Kind.RULE.value, "name": rules[rule], "verb": verb, side: part}
        await writing.rows("rules.add_changes", who, [row])


async def _by_value(statements: Statements, rules: list[str]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """All such limits, so many at once, by rule."""
    rule, user = "", ""
    while rows := await statements.rows("rule_sets.override_values", rules, rule, user, _PAGE):
        for name in dict.fromkeys(row["rule"] for row in rows):
            yield name, {"users": {row["user_id"]: row["limits"] for row in rows if row["rule"] == name}}
        rule, user = rows[-1]["rule"], rows[-1]["user_id"]
    rule, key = "", _NO_ID
    while rows := await statements.rows("rule_sets.key_limit_values", rules, rule, key, _PAGE):
        for name in dict.fromkeys(row["rule"] for row in rows):
            mine = (row for row in rows if row["rule"] == name)
            yield name, {"keys": {str(row["id"]): {"prefix": row["prefix"], "limits": row["limits"]} for row in mine}}
        rule, key = rows[-1]["rule"], rows[-1]["id"]
