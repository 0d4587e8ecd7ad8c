"""What differs between two rule sets, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_MAX_LENGTH: Final = 80


@dataclass(frozen=True, slots=True)
class Contents:
    """Rules and tiers by name, each as complete data, and what else belongs to them."""

    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tiers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    default_tier: str | None = None
    owners: Mapping[str, str] = field(default_factory=dict)
    """The file that a rule is from, for those that are from one."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a rule or tier that has another value."""

    name: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """``search: limits 100/hour → 200/hour``."""
        return f"{self.name}: {self.field} {_words(self.before)} → {_words(self.after)}"

    def as_dict(self) -> dict[str, Any]:
        """The change for JSON."""
        return {"name": self.name, "field": self.field, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class OwnLimitHolders:
    """Who has limits in place of a rule's own, some of them by name."""

    rule: str
    users: int = 0
    some_users: tuple[str, ...] = ()
    keys: int = 0
    some_keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        """``limits of 2 users (u1, u2) and 1 API key (hg_x)``."""
        parts = (_holders(self.users, "user", self.some_users), _holders(self.keys, "API key", self.some_keys))
        return f"limits of {' and '.join(filter(None, parts))}"

    def as_dict(self) -> dict[str, Any]:
        """The holders for JSON."""
        return {
            "rule": self.rule,
            "users": self.users,
            "keys": self.keys,
            "some_users": list(self.some_users),
            "some_keys": list(self.some_keys),
        }


def _holders(many: int, noun: str, some: tuple[str, ...]) -> str:
    if not many:
        return ""
    more = f" and {many - len(some)} more" if many > len(some) else ""
    return f"{many} {noun}{'s' if many > 1 else ''} ({', '.join(map(_words, some))}{more})"


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
    renamed: tuple[FieldChange, ...] = ()
    """Rules that get another name, by the old one. All other fields use the new names."""
    dormant: tuple[OwnLimitHolders, ...] = ()
    """Whose limits become dormant with the rules that are removed."""
    returning: tuple[OwnLimitHolders, ...] = ()
    """Whose limits are active again with the rules that are added."""
    delete_at_most: int | None = None
    """The `--delete-at-most` that a sync needs for this many deletions; None if it needs none."""
    set_back: tuple[tuple[str, str], ...] = ()
    """Rules that are changed or removed although a file owns them, each with the file that will set it back."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return not (self.affects_decisions or self.owners)

    @property
    def affects_decisions(self) -> bool:
        """Whether requests are decided by something else than before."""
        rules = self.added or self.changed or self.removed or self.renamed
        return bool(rules or self.tiers_added or self.tiers_changed or self.tiers_removed or self.default_tier)

    def lines(self) -> list[str]:
        """The difference for people, one thing in each line."""
        asleep = {each.rule: f": {each} become dormant" for each in self.dormant}
        awake = {each.rule: f": {each} become active again" for each in self.returning}
        return [
            *(f"+ tier {name}" for name in self.tiers_added),
            *(f"~ tier {change}" for change in self.tiers_changed),
            *(f"- tier {name}" for name in self.tiers_removed),
            *([f"~ {self.default_tier}"] if self.default_tier else []),
            *(f"+ rule {name}{awake.get(name, '')}" for name in self.added),
            *(f"~ rule {change}, and keeps its counters, own limits and history" for change in self.renamed),
            *(f"~ rule {change}" for change in self.changed),
            *(f"- rule {name}{asleep.get(name, '')}" for name in self.removed),
            *(f"~ rule {change}" for change in self.owners),
        ]

    def as_dict(self) -> dict[str, Any]:
        """The difference for JSON."""
        return {
            "added": list(self.added),
            "changed": [change.as_dict() for change in self.changed],
            "removed": list(self.removed),
            "unchanged": self.unchanged,
            "tiers_added": list(self.tiers_added),
            "tiers_changed": [change.as_dict() for change in self.tiers_changed],
            "tiers_removed": list(self.tiers_removed),
            "default_tier": self.default_tier and self.default_tier.as_dict(),
            "renamed": [{"before": change.before, "after": change.after} for change in self.renamed],
            "owners": [change.as_dict() for change in self.owners],
            "dormant": [each.as_dict() for each in self.dormant],
            "returning": [each.as_dict() for each in self.returning],
            "delete_at_most": self.delete_at_most,
            "set_back": [{"rule": rule, "owner": owner} for rule, owner in self.set_back],
            "lines": self.lines(),
        }


def difference(before: Contents, after: Contents, renamed: Mapping[str, str] | None = None) -> Difference:
    """What has to be done to get from one to the other; `renamed` are new names that `before` has already."""
    renamed = renamed or {}
    default = None
    if before.default_tier != after.default_tier:
        default = FieldChange("tiers", "default_tier", before.default_tier, after.default_tier)
    changed = _changed(before.rules, after.rules)
    differ = {change.name for change in changed}.union(renamed.values())
    stay = len((before.rules.keys() & after.rules.keys()) - differ)
    return Difference(
        added=tuple(name for name in after.rules if name not in before.rules),
        changed=changed,
        removed=tuple(name for name in before.rules if name not in after.rules),
        unchanged=stay,
        tiers_added=tuple(name for name in after.tiers if name not in before.tiers),
        tiers_changed=_changed(before.tiers, after.tiers),
        tiers_removed=tuple(name for name in before.tiers if name not in after.tiers),
        default_tier=default,
        owners=tuple(
            FieldChange(name, "owner", before.owners.get(name), after.owners.get(name))
            for name in after.rules
            if name in before.rules and before.owners.get(name) != after.owners.get(name)
        ),
        renamed=tuple(FieldChange(old, "name", old, new) for old, new in renamed.items()),
    )


def _changed(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> tuple[FieldChange, ...]:
    found: list[FieldChange] = []
    for name, data in after.items():
        if name in before and before[name] != data:
            old, new = _flat(before[name]), _flat(data)
            found += [
                FieldChange(name, each, old.get(each), new.get(each))
                for each in dict.fromkeys([*new, *old])
                if old.get(each) != new.get(each)
            ]
    return tuple(found)


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A mapping in mappings as one: ``match.endpoints``."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _words(value: object) -> str:
    """A value as people read it, in one line."""
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"
