"""Rules one by one: drafted, put in force, changed, switched off, taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.controlplane.publishing import nothing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headgate.controlplane.publishing import Announce, Publisher
    from headgate.errors import Problem
    from headgate.ports import Database


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """A rule as it is stored."""

    name: str
    data: Mapping[str, Any] | None
    """What is in force, complete; None if it was never published."""
    draft: Mapping[str, Any] | None
    """What is being prepared."""
    owner: str | None
    """The file that says what the rule is, if one does."""
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str


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
    ) -> list[RuleRecord]:
        """Rules by name, from behind the name `after`; `tier` and `endpoint` are as a rule's `match` names them."""
        raise NotImplementedError

    async def get(self, name: str) -> RuleRecord:
        """One rule."""
        raise NotImplementedError

    async def create(self, data: object, who: str, *, draft: bool = False, owner: str | None = None) -> RuleRecord:
        """A new rule, in force at once unless it is a draft."""
        raise NotImplementedError

    async def replace(
        self, name: str, data: object, who: str, version: int | None = None, *, draft: bool = False
    ) -> RuleRecord:
        """Another content for a rule, in force at once unless it is a draft."""
        raise NotImplementedError

    async def delete(self, name: str, who: str, version: int | None = None) -> None:
        """Take a rule away, with the limits that users and keys have for it."""
        raise NotImplementedError

    async def set_enabled(self, name: str, enabled: bool, who: str, version: int | None = None) -> RuleRecord:  # noqa: FBT001 (it is what the method is about)
        """Switch a rule on or off."""
        raise NotImplementedError

    async def publish(self, names: Sequence[str] | None, who: str) -> Sequence[RuleRecord]:
        """Put drafts in force, all of them or none; every draft there is if `names` is None."""
        raise NotImplementedError

    async def discard(self, name: str, who: str, version: int | None = None) -> RuleRecord | None:
        """Drop a draft; the rule is gone if it was never in force."""
        raise NotImplementedError

    async def history(self, name: str) -> Sequence[RuleVersion]:
        """What the rule has been, the newest first; also of one that is gone."""
        raise NotImplementedError

    async def rollback(self, name: str, change: int, who: str, version: int | None = None) -> RuleRecord:
        """Make a rule what it was from that change on; also one that is gone."""
        raise NotImplementedError

    async def validate(self, data: object) -> Sequence[Problem]:
        """What is wrong with a rule, or with a rule set, if it were put in force now. Nothing is stored."""
        raise NotImplementedError
