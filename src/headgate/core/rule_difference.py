"""What differs between two rule sets, field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a rule or tier that has another value."""

    name: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """``search: limits 100/hour → 200/hour``."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that differs."""

    added: tuple[str, ...] = ()
    changed: tuple[FieldChange, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    """How many rules stay as they are."""
    tiers_added: tuple[str, ...] = ()
    tiers_changed: tuple[FieldChange, ...] = ()
    tiers_removed: tuple[str, ...] = ()
    default_tier: FieldChange | None = None
    owners: tuple[FieldChange, ...] = ()
    """Rules that get another owner."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        raise NotImplementedError

    def lines(self) -> list[str]:
        """The difference for people, one thing in each line."""
        raise NotImplementedError

    def as_dict(self) -> Mapping[str, Any]:
        """The difference for JSON."""
        raise NotImplementedError
