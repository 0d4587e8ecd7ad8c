"""Rules as code: what a file would change, and changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.controlplane.publishing import nothing

if TYPE_CHECKING:
    from headgate.controlplane.publishing import Announce, Publisher
    from headgate.core.rule_difference import Difference
    from headgate.ports import Database


class RuleSetChanges:
    """Whole rule sets, from files and back."""

    def __init__(self, database: Database, publisher: Publisher, announce: Announce = nothing) -> None:
        """`announce` is called after each change that was committed."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def dump(self) -> dict[str, Any]:
        """What a file would have to say for all that is in force; the same rules always give the same."""
        raise NotImplementedError

    async def plan(
        self, data: object, *, delete: bool, owner: str | None = None, take_over: bool = False
    ) -> Difference:
        """What `apply` would change, or `sync` with `delete`; raises what they would raise."""
        raise NotImplementedError

    async def apply(self, data: object, who: str, owner: str | None = None, *, take_over: bool = False) -> Difference:
        """Add and change what `data` names, and delete nothing. `owner` is the file it comes from.

        A rule that another file owns is a `Conflict`, unless it is taken over.
        """
        raise NotImplementedError

    async def sync(self, data: object, who: str, owner: str | None = None, *, take_over: bool = False) -> Difference:
        """`apply`, and delete what `data` does not name.

        Rules of other files stay if there is an `owner`. A rule set without `tiers` leaves
        all tiers, and one without `rules` all rules.
        """
        raise NotImplementedError
