"""Tiers: plans that users and keys are on, with a price and named limits. They are part of what is published."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.controlplane.changes import Kind, announced, nothing, record
from headgate.controlplane.fields import as_json, at_most, found, limits_of, refuse, stays, storable
from headgate.core.parsing.fields import Fields, name_problem
from headgate.core.parsing.limits import limits
from headgate.errors import Conflict, InvalidRules, Problem, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.controlplane.publisher import Publisher
    from headgate.ports import Database, Statements, Writing

_FIELDS: Final = ("name", "display_name", "price", "limits", "is_default")
_MAX_PRICE: Final = 1e12
_MAX_LIMITS: Final = 1_000
_MAX_RULES: Final = 100
"""Rules that are listed for a tier."""
_MAX_DISPLAY_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class TierRecord:
    """A tier as it is kept."""

    name: str
    display_name: str | None
    price: float
    limits: Mapping[str, tuple[str, ...]]
    is_default: bool
    """Users and keys without a tier are on this one."""
    version: int
    created_at: datetime
    updated_at: datetime

    def as_dict(self) -> dict[str, Any]:
        """What can be set, as JSON has it."""
        return {name: as_json(getattr(self, name)) for name in _FIELDS}


class TierRule(NamedTuple):
    """A rule that uses a tier."""

    rule: str
    matches_tier: bool
    """Whether it is only for some tiers, this one among them."""
    limits: Sequence[str]
    """The names of the tier's limits that it takes."""


class TierUse(NamedTuple):
    """Who is on a tier, and which rules use it."""

    users: int
    api_keys: int
    rules: Sequence[TierRule]
    has_more_rules: bool


class Tiers:
    """Everything that is done with tiers. What would break a rule is refused with `InvalidRules`."""

    def __init__(self, database: Database, publisher: Publisher, announce: Announce = nothing) -> None:
        """`announce` is called after each change."""
        self._database = database
        self._publisher = publisher
        self._announce = announce

    async def list(self) -> list[TierRecord]:
        """All tiers, in the order in which they were made."""
        return [_record(row) for row in await self._database.rows("tiers.list")]

    async def get(self, name: str) -> TierRecord:
        """One tier, or `NotFound`."""
        return await _get(self._database, name)

    async def use(self, name: str) -> TierUse:
        """Who is on a tier, and the first rules that name it or one of its limits."""
        tier = await _get(self._database, name)
        counts = await self._database.row("tiers.used", tier.name, tier.is_default) or {}
        rows = await self._database.rows("tiers.rules", tier.name, list(tier.limits), _MAX_RULES + 1)
        rules = [TierRule(**row) for row in rows[:_MAX_RULES]]
        return TierUse(counts["users"], counts["api_keys"], rules, len(rows) > _MAX_RULES)

    async def create(self, data: object, who: str) -> TierRecord:
        """A new tier. The first is the default, and so is one that says ``is_default``, in place of the one before."""
        form = _read(data)
        async with announced(self._database, self._announce) as writing:
            if taken := await writing.row("tiers.like", form.name):
                msg = f"there is a tier {taken['name']!r} already"
                raise Conflict(msg)
            default = await writing.row("tiers.default")
            is_default = form.is_default or default is None
            if default is not None and is_default:
                await _no_longer_default(writing, default["name"], who)
            await writing.run("tiers.add", *form[:4], is_default)
            return await self._publish(writing, who, "created", None, form.name)

    async def replace(self, name: str, data: object, who: str, version: int | None = None) -> TierRecord:
        """Make a tier what `data` says; what it leaves out is as in a new one, except that a default stays one."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, name, version)
            form = _read(data, before)
            default = await writing.row("tiers.default")
            if form.is_default and default is not None and default["name"] != name:
                await _no_longer_default(writing, default["name"], who)
            await writing.run("tiers.set", *form)
            return await self._publish(writing, who, "changed", before, name)

    async def delete(self, name: str, who: str, version: int | None = None) -> None:
        """Take a tier away, or say in a `Conflict` who needs it."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, name, version)
            if before.is_default and len(await writing.rows("tiers.names")) > 1:
                msg = f"tier {name!r} is the default; make another one the default first"
                raise Conflict(msg)
            needed = await writing.row("tiers.needed_by", name) or {}
            for kind, of_kind in (("user", needed["user_id"]), ("API key", needed["api_key"])):
                if of_kind is not None:
                    msg = f"tier {name!r} is still needed: {kind} {short_repr(str(of_kind))} is on it"
                    raise Conflict(msg)
            await writing.run("tiers.delete", name)
            change = await record(writing, who, Kind.TIER, name, "deleted", before.as_dict(), None)
            try:
                await self._publisher.publish(writing, who, change)
            except InvalidRules as error:
                msg = f"tier {name!r} is still needed: {'; '.join(error.lines)}"
                raise Conflict(msg) from error

    async def _publish(self, writing: Writing, who: str, verb: str, before: TierRecord | None, name: str) -> TierRecord:
        after = await _get(writing, name)
        change = await record(
            writing, who, Kind.TIER, name, verb, None if before is None else before.as_dict(), after.as_dict()
        )
        await self._publisher.publish(writing, who, change)
        return after


class _Form(NamedTuple):
    """A tier to write; in the order of the statements."""

    name: str
    display_name: str | None
    price: Decimal
    limits: dict[str, tuple[str, ...]]
    is_default: bool


def _read(data: object, before: TierRecord | None = None) -> _Form:
    """A form, or `InvalidFields` with everything that is wrong with it."""
    problems: list[Problem] = []
    fields = Fields(data, (), problems, _FIELDS)
    if before is not None:
        stays(fields, "name", before.name)
    elif fields.is_mapping and not fields.has("name"):
        fields.problem("a tier needs a name", "name")
    was_default = before is not None and before.is_default
    is_default = fields.truth("is_default", default=was_default)
    if was_default and not is_default:
        fields.problem("to change the default, set is_default at another tier", "is_default")
    form = _Form(
        before.name if before else fields.text("name", "", name_problem),
        fields.text("display_name", None, at_most(_MAX_DISPLAY_NAME)),
        Decimal(str(fields.number("price", 0, 0, _MAX_PRICE))),
        _limits(fields),
        is_default,
    )
    refuse(problems)
    return form


def _limits(fields: Fields) -> dict[str, tuple[str, ...]]:
    given = fields.mapping("limits")
    if len(given) > _MAX_LIMITS:
        fields.problem(f"at most {_MAX_LIMITS} limits, not {len(given)}", "limits")
        return {}
    named: dict[str, tuple[str, ...]] = {}
    seen: dict[str, str] = {}
    for name, texts in given.items():
        if wrong := name_problem(name):
            fields.problem(wrong, "limits", name)
            continue
        if (first := seen.setdefault(name.casefold(), name)) != name:
            fields.problem(f"it differs from {first!r} only by letter case", "limits", name)
        named[name] = tuple(map(str, limits(texts, ("limits", name), fields.problems)))
    return named


async def _get(statements: Statements, name: str, version: int | None = None) -> TierRecord:
    return _record(found(f"tier {short_repr(name)}", await statements.row("tiers.get", storable(name)), version))


async def _no_longer_default(writing: Writing, name: str, who: str) -> None:
    before = await _get(writing, name)
    await writing.run("tiers.no_longer_default", name)
    after = await _get(writing, name)
    await record(writing, who, Kind.TIER, name, "changed", before.as_dict(), after.as_dict())


def _record(row: Mapping[str, Any]) -> TierRecord:
    return TierRecord(**{**row, "price": float(row["price"]), "limits": limits_of(row["limits"])})
