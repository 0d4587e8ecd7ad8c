"""Rules as code: what a file would change, and changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.controlplane.changes import announced, nothing
from headgate.controlplane.publishing import parsed
from headgate.controlplane.rule_plans import Wish, checked, planned
from headgate.controlplane.rule_set_writing import write
from headgate.controlplane.undisturbed import aside
from headgate.core.rule_data import brief_rule_set
from headgate.core.rule_difference import Difference
from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from headgate.controlplane.changes import Announce
    from headgate.controlplane.publishing import Publisher
    from headgate.ports import Database

__all__ = ["Difference", "RuleSetChanges"]


class RuleSetChanges:
    """Whole rule sets, from files and back."""

    def __init__(self, database: Database, publisher: Publisher, announce: Announce = nothing) -> None:
        """`announce` is called after each change that was committed."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def dump(self) -> dict[str, Any]:
        """What a file would have to say for all that is in force; the same rules always give the same."""
        data = await self._publisher.rule_set(self._database)
        return await aside(lambda: brief_rule_set(parsed(data)))

    async def plan(
        self, data: object, *, delete: bool, owner: str | None = None, take_over: bool = False
    ) -> Difference:
        """What `apply` would change, or `sync` with `delete`; raises what they would raise."""
        wish = await aside(Wish.read, data, delete=delete, owner=owner, take_over=take_over)
        return (await checked(self._database, self._publisher, wish)).difference

    async def apply(self, data: object, who: str, owner: str | None = None, *, take_over: bool = False) -> Difference:
        """Add and change what `data` names, and delete nothing. `owner` is the file it comes from.

        A rule that another file owns is a `Conflict`, unless it is taken over.
        """
        return await self._fulfil(await aside(Wish.read, data, owner=owner, take_over=take_over), who)

    async def sync(self, data: object, who: str, owner: str | None = None, *, take_over: bool = False) -> Difference:
        """`apply`, and delete what `data` does not name.

        Rules of other files stay if there is an `owner`. A rule set without `tiers` leaves
        all tiers, and one without `rules` all rules.
        """
        return await self._fulfil(await aside(Wish.read, data, delete=True, owner=owner, take_over=take_over), who)

    async def _fulfil(self, wish: Wish, who: str) -> Difference:
        async with announced(self._database, self._announce) as writing:
            plan = await planned(writing, wish)
            try:
                await write(writing, who, plan, self._publisher)
            except InvalidRules as error:
                raise InvalidRules(wish.in_its_words(error.problems)) from error
        return plan.difference
