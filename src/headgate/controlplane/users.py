"""Users: the tier they are on, limits of their own, and what they have used."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.controlplane.bulk_load import Complaints, batches
from headgate.controlplane.changes import Kind, announced, nothing, record
from headgate.controlplane.fields import (
    MAX_ID_LENGTH,
    as_json,
    at_most,
    found,
    limits_of,
    refuse,
    stays,
    storable,
    tier,
    tier_names,
)
from headgate.controlplane.overrides import MAX_RULES, OverrideReader
from headgate.core.parsing.fields import Fields, unusable
from headgate.errors import Conflict, InvalidFields, NotFound, Problem, short_repr
from headgate.ports import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Collection, Iterable
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.core.meter import Zones
    from headgate.core.parsing.fields import Path
    from headgate.ports import Database, Statements, Writing

_FIELDS: Final = ("id", "tier", "overrides")
_LOADING: Final = tuple(
    f"users.{step}" for step in ("load_versions", "load_tiers", "load_no_overrides", "load_overrides", "loaded")
)


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user as it is kept."""

    id: str
    tier: str | None
    """None is the default tier, or what a verified claim says."""
    tier_since: datetime | None
    overrides: Mapping[str, tuple[str, ...]]
    """Limits in place of an active rule's own, by the rule's name."""
    requests_today: int
    requests_month: int
    last_request: datetime | None
    times_exceeded: int
    quota_reset: datetime | None
    """When what was used was last forgiven."""
    version: int
    created_at: datetime
    updated_at: datetime
    dormant_overrides: Mapping[str, tuple[str, ...]]
    """Those of rules that are not active; each is used again once its rule is."""

    def as_dict(self) -> dict[str, Any]:
        """What can be set, and since when it is so, as JSON has it."""
        names = (*_FIELDS, "tier_since", "quota_reset", *(["dormant_overrides"] if self.dormant_overrides else []))
        return {name: as_json(getattr(self, name)) for name in names}


class Users:
    """Everything that is done with users."""

    def __init__(self, database: Database, zones: Zones, announce: Announce = nothing) -> None:
        """`zones` finds the time zones that limits name; `announce` is called after each change."""
        self._database = database
        self._zones = zones
        self._announce = announce

    async def list(
        self, *, tier: str | None = None, prefix: str | None = None, after: str | None = None, most: int = 50
    ) -> list[UserRecord]:
        """Users by id, from after the id `after`, on a tier, and with ids that begin with `prefix`."""
        if after is not None and (wrong := unusable(after)):
            raise InvalidFields([Problem(("after",), wrong)])
        if prefix is not None:
            of_tier = None if tier is None else storable(tier)
            rows = await self._database.rows("users.list_of_prefix", storable(prefix), of_tier, after or "", most)
        elif tier is None:
            rows = await self._database.rows("users.list", after or "", most)
        else:
            rows = await self._database.rows("users.list_of_tier", storable(tier), after or "", most)
        return [_record(row) for row in rows]

    async def get(self, id: str) -> UserRecord:  # noqa: A002 (users have ids)
        """One user, or `NotFound`."""
        return await _get(self._database, id)

    async def create(self, data: object, who: str) -> UserRecord:
        """A new user: ``{"id": …, "tier": …, "overrides": {"search": "5/minute"}}``."""
        async with announced(self._database, self._announce) as writing:
            form = await self._read(writing, data)
            if await writing.row("users.get", form.id):
                msg = f"there is a user {short_repr(form.id)} already"
                raise Conflict(msg)
            await writing.run("users.add", form.id, form.tier)
            await _put_overrides(writing, form)
            return await _changed(writing, who, "created", form.id, None)

    async def replace(self, id: str, data: object, who: str, version: int | None = None) -> UserRecord:  # noqa: A002 (as above)
        """Make a user what `data` says, with no tier and no overrides where it says nothing; dormant ones stay."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            form = await self._read(writing, data, id)
            await writing.run("users.set", id, form.tier)
            await writing.run("users.drop_overrides", id, [*before.overrides])
            await _put_overrides(writing, form)
            return await _changed(writing, who, "changed", id, before)

    async def delete(self, id: str, who: str, version: int | None = None) -> None:  # noqa: A002 (as above)
        """Take a user away, with overrides and API keys."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            keys = [str(row["id"]) for row in await writing.rows("users.keys", id)]
            await writing.run("users.delete", id)
            if keys:  # their hashes are gone with them, so all processes are told to forget every key they know
                await record(writing, who, Kind.API_KEY, EVERYTHING, "deleted", {"user": id, "keys": keys}, None)
            await record(writing, who, Kind.USER, id, "deleted", before.as_dict(), None)

    async def set_override(
        self,
        id: str,  # noqa: A002 (as above)
        rule: str,
        limits: object,
        who: str,
        version: int | None = None,
    ) -> UserRecord:
        """Give a user limits in place of a rule's own."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            texts = await OverrideReader(self._zones).read_one(writing, rule, limits)
            if len({*before.overrides, rule}) > MAX_RULES:
                msg = f"user {short_repr(id)} has {MAX_RULES} overrides, the maximum; remove one first"
                raise Conflict(msg)
            await writing.run("users.put_override", id, rule, texts)
            await writing.run("users.touch", id)
            return await _changed(writing, who, "changed", id, before)

    async def remove_override(self, id: str, rule: str, who: str, version: int | None = None) -> UserRecord:  # noqa: A002 (as above)
        """Let the rule's own limits hold again; `NotFound` if there is no such override, active or dormant."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            if rule not in before.overrides and rule not in before.dormant_overrides:
                msg = f"user {short_repr(id)} has no override of rule {short_repr(rule)}"
                raise NotFound(msg)
            await writing.run("users.drop_overrides", id, [rule])
            await writing.run("users.touch", id)
            return await _changed(writing, who, "changed", id, before)

    async def mark_quota_reset(self, id: str, who: str) -> UserRecord:  # noqa: A002 (as above)
        """Note that what the user has used was forgiven now."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id)
            await writing.run("users.reset", id)
            return await _changed(writing, who, "reset", id, before)

    async def load(
        self,
        rows: Iterable[object] | AsyncIterable[object],
        who: str,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Create or replace very many, all or none; `progress` hears how many are through. Returns how many came.

        Overrides that a row does not mention stay. Of two rows for one user the later counts.
        """
        through, complaints, own = 0, Complaints(), OverrideReader(self._zones)
        async with announced(self._database, self._announce) as writing:
            tiers = await tier_names(writing)
            await writing.run("users.start_loading")
            async for batch in batches(rows):
                await own.look_up(writing, (row.get("overrides") for row in batch if isinstance(row, Mapping)))
                # In a thread, because it takes as long as a thousand decisions.
                forms, problems = await asyncio.to_thread(_read_many, batch, through, tiers, own)
                complaints.add(problems)
                if not complaints.count:
                    await writing.copy("loading_users", _Form._fields, [*{form.id: form for form in forms}.values()])
                    for step in _LOADING:
                        await writing.run(step)
                through += len(batch)
                progress(through)
            complaints.refuse()
            await record(writing, who, Kind.USER, EVERYTHING, "loaded", None, {"users": through})
        return through

    async def _read(self, writing: Writing, data: object, known_id: str | None = None) -> _Form:
        problems: list[Problem] = []
        own = OverrideReader(self._zones)
        await own.look_up(writing, [data.get("overrides")] if isinstance(data, Mapping) else [])
        form = _read(data, (), problems, await tier_names(writing), own, known_id)
        refuse(problems)
        return form


class _Form(NamedTuple):
    """A user to write; in the order of the table for loading."""

    id: str
    tier: str | None
    overrides: dict[str, tuple[str, ...]] | None
    """None if nothing is said about them."""


def _read(
    data: object,
    path: Path,
    problems: list[Problem],
    tiers: Collection[str],
    own: OverrideReader,
    known_id: str | None = None,
) -> _Form:
    fields = Fields(data, path, problems, _FIELDS)
    if known_id is not None:
        stays(fields, "id", known_id)
    elif fields.is_mapping and not fields.has("id"):
        fields.problem("a user needs an id", "id")
    its_id = fields.text("id", "", at_most(MAX_ID_LENGTH)) if known_id is None else known_id
    return _Form(its_id, tier(fields, tiers), own.read(fields, "overrides") if fields.has("overrides") else None)


def _read_many(
    batch: Iterable[object], first: int, tiers: Collection[str], own: OverrideReader
) -> tuple[list[_Form], list[Problem]]:
    problems: list[Problem] = []
    return [_read(data, (number,), problems, tiers, own) for number, data in enumerate(batch, first)], problems


async def _put_overrides(writing: Writing, form: _Form) -> None:
    if form.overrides:
        await writing.run_many(
            "users.put_override", [(form.id, rule, limits) for rule, limits in form.overrides.items()]
        )


async def _get(statements: Statements, id: str, version: int | None = None) -> UserRecord:  # noqa: A002 (users have ids)
    return _record(found(f"user {short_repr(id)}", await statements.row("users.get", storable(id)), version))


async def _changed(writing: Writing, who: str, verb: str, id: str, before: UserRecord | None) -> UserRecord:  # noqa: A002 (as above)
    after = await _get(writing, id)
    await record(writing, who, Kind.USER, id, verb, None if before is None else before.as_dict(), after.as_dict())
    return after


def _record(row: Mapping[str, Any]) -> UserRecord:
    return UserRecord(**{**row, **{name: limits_of(row[name]) for name in ("overrides", "dormant_overrides")}})
