"""From the tables of rules and tiers to a numbered rule set that every process will run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.documents import make
from headgate.controlplane.gc_paused import in_thread
from headgate.core.matching import Snapshot
from headgate.core.parsing.limits import fit_problems, limits
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule_data import brief_rule_set
from headgate.errors import InvalidRules, Problem, short_repr
from headgate.ports import EVERYTHING, RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.meter import Zones
    from headgate.core.rule import Rule, RuleSet
    from headgate.core.units import Micros
    from headgate.ports import Document, Statements, Writing

MAX_RULES: Final = 100_000
_KEPT_SNAPSHOTS: Final = 1_000
"""Snapshots that one can go back to."""
_MAX_PROBLEMS: Final = 100
_PAGE: Final = 5_000
_WAY_OUT: Final = "remove them, or make the rule one that they fit"
_BEFORE_ALL: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Published:
    """A rule set that is active once the transaction is committed."""

    number: int
    rules: int
    digest: str
    """In hexadecimal digits."""


class Publisher:
    """Checks the rules as the processes will, and writes the snapshot."""

    def __init__(self, zones: Zones, clock: Callable[[], Micros]) -> None:
        """`zones` finds time zones by name; `clock` is read for calendar limits."""
        self._zones = zones
        self._clock = clock

    async def rule_set(
        self, statements: Statements, instead: Sequence[Mapping[str, Any]] | None = None
    ) -> dict[str, Any]:
        """The active rules, or those that are given `instead`, and the tiers, as `parse_rule_set` takes them."""
        tiers = await statements.rows("rule_sets.tiers")
        rules = await in_pages(statements, "rule_sets.rules") if instead is None else ()
        return {
            "default_tier": next((tier["name"] for tier in tiers if tier["is_default"]), None),
            "tiers": {tier["name"]: tier_data(tier) for tier in tiers},
            "rules": [*(instead or ()), *(readable(rule["name"], rule["data"]) for rule in rules)],
        }

    async def publish(self, writing: Writing, who: str, change: int) -> Published:
        """Check the rule set that would be active, and store it as the snapshot of that change.

        Raises `InvalidRules`, with paths such as ``rules.search.limits``; the caller rolls back then.
        """
        rule_set = await self.check(writing, await self.rule_set(writing))
        document = await in_thread(_packed, rule_set, change)
        await writing.run("snapshots.add", change, who, len(rule_set.rules), document.digest, document.body)
        await writing.run("snapshots.prune", _KEPT_SNAPSHOTS)
        return Published(change, len(rule_set.rules), document.digest.hex())

    async def check(self, statements: Statements, data: Mapping[str, Any], also: Sequence[str] = ()) -> RuleSet:
        """Read a whole rule set as processes will, with the limits of users and keys in mind.

        These are looked at for rules that have changed since the last snapshot, and for `also`.
        """
        refuse_too_many(len(data["rules"]))
        rule_set = await in_thread(self._compiled, data)
        changed = {row["name"] for row in await statements.rows("rule_sets.changed")} | set(also)
        ids = [rule.id for rule in rule_set.rules if rule.name in changed] if changed else []
        everything = EVERYTHING in changed
        if (ids or everything) and (unfit := await _unfit(statements, rule_set, None if everything else ids)):
            raise _refused(unfit)
        return rule_set

    def _compiled(self, data: Mapping[str, Any]) -> RuleSet:
        rule_set = parsed(data, self._zones)
        Snapshot(rule_set, 0, self._zones, self._clock)
        return rule_set


def refuse_too_many(rules: int) -> None:
    """Raise `InvalidRules` if so many rules cannot be active."""
    if rules > MAX_RULES:
        message = f"there would be {rules:,} rules; at most {MAX_RULES:,} can be active"
        raise InvalidRules([Problem(("rules",), message)])


async def in_pages(statements: Statements, statement: str) -> list[Mapping[str, Any]]:
    """All rules in their order, so many at once that no statement takes long."""
    found: list[Mapping[str, Any]] = []
    position, name = _BEFORE_ALL, ""
    while True:
        some = await statements.rows(statement, position, name, _PAGE)
        found += some
        if len(some) < _PAGE:
            return found
        position, name = some[-1]["position"], some[-1]["name"]


def parsed(data: Mapping[str, Any], zones: Zones | None = None) -> RuleSet:
    """Read what `Publisher.rule_set` gives; what is wrong with a rule is said of its name."""
    try:
        return parse_rule_set(data, zones, stored=True)
    except InvalidRules as error:
        raise _refused([_by_name(problem, data) for problem in error.problems]) from error


def readable(name: str, data: object) -> dict[str, Any]:
    """A rule's data under the name of its row; unreadable data is marked as such, and refused when checked."""
    return {**data, "name": name} if isinstance(data, dict) else {"name": name, "unreadable": data}


def tier_data(row: Mapping[str, Any]) -> dict[str, Any]:
    """A tier's row as it stands in a rule set."""
    named = {} if row["display_name"] is None else {"display_name": row["display_name"]}
    price = row["price"]
    return {"price": int(price) if price == int(price) else price, "limits": row["limits"]} | named


def _packed(rule_set: RuleSet, number: int) -> Document:
    return make(RULES, number, brief_rule_set(rule_set))


def _by_name(problem: Problem, data: Mapping[str, Any]) -> Problem:
    """A problem with the rule's name in its path: a caller that changed another rule does not know this one's index."""
    match problem.path:
        case ("rules", int(index), "unreadable"):
            message = "its row was written by hand and cannot be read; replace the rule or delete it"
            return Problem(("rules", data["rules"][index]["name"]), message)
        case ("rules", int(index), *rest):
            return Problem(("rules", data["rules"][index]["name"], *rest), problem.message)
        case _:
            return problem


async def _unfit(statements: Statements, rule_set: RuleSet, ids: Sequence[str] | None) -> list[Problem]:
    """What users and keys have in place of a rule's limits, and the rule cannot use."""
    rules = {rule.id: rule for rule in rule_set.rules}
    problems: list[Problem] = []
    for statement, whose in (("rule_sets.overrides", "user"), ("rule_sets.key_limits", "API key")):
        for row in await statements.rows(statement, ids):
            rule = rules.get(row["rule"])
            if rule is not None and (wrong := _wrong_with(rule, row["limits"])):
                many = f"{row['many']} {whose}{'s have' if row['many'] > 1 else ' has'}"
                example = short_repr(row["example"])
                message = f"{many} own limits for it ({example}, for example) that do not fit: {wrong[0]}; {_WAY_OUT}"
                problems.append(Problem(("rules", rule.name), message))
    return problems


def _wrong_with(rule: Rule, texts: object) -> Sequence[str]:
    if rule.is_gate:
        return [f"a rule with 'action: {rule.action.value}' takes no limits"]
    problems: list[Problem] = []
    among = limits(texts, (), problems)
    return [problem.message for problem in problems] or fit_problems(rule, among)


def _refused(problems: Sequence[Problem]) -> InvalidRules:
    """What is wrong; of very many problems the first."""
    if len(problems) > _MAX_PROBLEMS:
        more = Problem((), f"and {len(problems) - _MAX_PROBLEMS:,} more problems")
        problems = [*problems[:_MAX_PROBLEMS], more]
    return InvalidRules(problems)
