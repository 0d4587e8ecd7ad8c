"""Limits that a user or a key has in place of a rule's own: each must fit the active rule."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.controlplane.fields import refuse
from headgate.core.limit import Rate
from headgate.core.parsing.fields import name_problem
from headgate.core.parsing.limits import fit_problems, limits
from headgate.core.parsing.rule import rule
from headgate.errors import InvalidLimit, Problem, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.core.limit import Limit
    from headgate.core.meter import Zones
    from headgate.core.parsing.fields import Fields, Path
    from headgate.core.rule import Rule
    from headgate.ports import Statements

MAX_RULES: Final = 100
"""For how many rules one user or key may have limits of its own."""


class OverrideReader:
    """Reads such limits. Rules are looked up once, so one of these serves one change."""

    def __init__(self, zones: Zones) -> None:
        """`zones` finds the time zones that calendar limits name."""
        self._zones = zones
        self._rules: dict[str, Rule | None] = {}

    async def look_up(self, statements: Statements, several: Iterable[object]) -> None:
        """Get to know the rules that these mappings name."""
        named = {name for each in several if isinstance(each, Mapping) for name in islice(each, MAX_RULES)}
        names = [name for name in named if not name_problem(name) and name not in self._rules]
        if names:
            self._rules |= dict.fromkeys(names)
            for row in await statements.rows("own_limits.rules", names):
                problems: list[Problem] = []
                read = rule(row["data"], (), problems, stored=True)
                # The row may have been written by hand. No limits fit a row that is not a rule.
                self._rules[row["name"]] = None if problems else read

    def read(self, fields: Fields, name: str) -> dict[str, tuple[str, ...]]:
        """Limits by rule, as they are stored."""
        given = fields.mapping(name)
        if len(given) > MAX_RULES:
            fields.problem(f"at most {MAX_RULES} rules, not {len(given)}", name)
            return {}
        return {
            of_rule: self._of_rule(of_rule, texts, (*fields.path, name, of_rule), fields.problems)
            for of_rule, texts in given.items()
        }

    async def read_one(self, statements: Statements, name: str, texts: object) -> tuple[str, ...]:
        """Limits in place of those of one rule, or `InvalidFields`."""
        problems: list[Problem] = []
        await self.look_up(statements, [{name: texts}])
        read = self._of_rule(name, texts, ("limits",), problems)
        refuse(problems)
        return read

    def _of_rule(self, name: object, texts: object, path: Path, problems: list[Problem]) -> tuple[str, ...]:
        own = limits(texts, path, problems)
        its_rule = self._rules.get(name) if isinstance(name, str) else None
        if its_rule is None:
            problems.append(Problem(path, f"there is no active rule {short_repr(name)}"))
        elif its_rule.is_gate:
            problems.append(Problem(path, f"{name!r} has 'action: {its_rule.action.value}' and takes no limits"))
        else:
            problems += [Problem(path, message) for message in fit_problems(its_rule, own)]
        problems += [Problem(path, message) for message in self._zone_problems(own)]
        return tuple(map(str, own))

    def _zone_problems(self, own: Iterable[Limit]) -> Iterable[str]:
        for limit in own:
            if isinstance(limit, Rate) and limit.calendar is not None:
                try:
                    self._zones(limit.calendar.zone)
                except InvalidLimit as error:
                    yield str(error)
