"""API keys: shown once when they are made, kept as a hash, and revoked or rotated by their ids."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from headgate.controlplane.bulk_load import Complaints, batches
from headgate.controlplane.changes import Kind, announced, nothing, record
from headgate.controlplane.fields import found, id_before, id_of, refuse, shown_id, storable, time_now
from headgate.controlplane.key_records import KeyForm, KeyReader, KeyRecord, KeyState, as_record
from headgate.controlplane.overrides import MAX_RULES, OverrideReader
from headgate.core.api_key import RANDOM_BYTES, hash_of, new_api_key, prefix_of
from headgate.errors import Conflict, InvalidFields, NotFound, Problem, short_repr
from headgate.ports import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable
    from datetime import datetime

    from headgate.controlplane.changes import Announce
    from headgate.core.meter import Zones
    from headgate.ports import Database, Statements, Writing

__all__ = ["KeyRecord", "KeyState", "Keys"]

_MAX_OVERLAP_SECONDS: Final = 30 * 86_400


class Keys:
    """Everything that is done with API keys."""

    def __init__(self, database: Database, zones: Zones, announce: Announce = nothing) -> None:
        """`zones` finds the time zones that limits name; `announce` is called after each change."""
        self._database = database
        self._zones = zones
        self._announce = announce

    async def list(
        self,
        *,
        user: str | None = None,
        prefix: str | None = None,
        state: str | None = None,
        after: str | None = None,
        most: int = 50,
    ) -> list[KeyRecord]:
        """Keys by id, from after the id `after`, of a user, or that begin with `prefix`."""
        if user is not None and prefix is not None:
            raise InvalidFields([Problem(("prefix",), "keys are found by user or by prefix; send one of both")])
        if state is not None and state not in set(KeyState):
            raise InvalidFields([Problem(("state",), f"{short_repr(state)} is not one of {', '.join(KeyState)}")])
        behind = id_before(after)
        if prefix is not None:
            rows = await self._database.rows("keys.list_of_prefix", storable(prefix), state, behind, most)
        elif user is None:
            rows = await self._database.rows("keys.list", state, behind, most)
        else:
            rows = await self._database.rows("keys.list_of_user", storable(user), state, behind, most)
        return [as_record(row) for row in rows]

    async def get(self, id: str) -> KeyRecord:  # noqa: A002 (keys have ids)
        """One key, or `NotFound`."""
        return await _get(self._database, id)

    async def digest(self, id: str) -> bytes | None:  # noqa: A002 (as above)
        """The SHA-256 that a key is looked up by; None if there is no such key."""
        row = await self._database.row("keys.hash", id_of(id))
        return None if row is None else row["hash"]

    async def create(self, data: object, who: str) -> tuple[KeyRecord, str]:
        """A new key, and its secret, which can never be read again."""
        async with announced(self._database, self._announce) as writing:
            form = await self._read(writing, data)
            return await _add(writing, form, who)

    async def replace(self, id: str, data: object, who: str, version: int | None = None) -> KeyRecord:  # noqa: A002 (as above)
        """Change name, tenant, tier, limits and expiry to what `data` says; the owner stays."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            _refuse_revoked(before)
            form = await self._read(writing, data, before)
            limits = form.limits
            await writing.run("keys.set", id_of(id), form.name, form.tenant, form.tier, limits, form.expires_at)
            return await _changed(writing, who, "changed", before)

    async def set_limits(
        self,
        id: str,  # noqa: A002 (as above)
        rule: str,
        limits: object,
        who: str,
        version: int | None = None,
    ) -> KeyRecord:
        """Give a key limits in place of a rule's own."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            _refuse_revoked(before)
            texts = await OverrideReader(self._zones).read_one(writing, rule, limits)
            if len({*before.limits, rule}) > MAX_RULES:
                msg = f"API key {before.id} has limits for {MAX_RULES} rules, the maximum; remove one first"
                raise Conflict(msg)
            await writing.run("keys.put_limits", id_of(id), rule, texts)
            return await _changed(writing, who, "changed", before)

    async def remove_limits(self, id: str, rule: str, who: str, version: int | None = None) -> KeyRecord:  # noqa: A002 (as above)
        """Let the rule's own limits hold again; `NotFound` if the key has none for it, active or dormant."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            if rule not in before.limits and rule not in before.dormant_limits:
                msg = f"API key {before.id} has no limits for rule {short_repr(rule)}"
                raise NotFound(msg)
            await writing.run("keys.drop_limits", id_of(id), rule)
            return await _changed(writing, who, "changed", before)

    async def revoke(self, id: str, who: str, version: int | None = None) -> KeyRecord:  # noqa: A002 (as above)
        """End a key now and for good. One that is revoked already stays as it is."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            if before.state is KeyState.REVOKED:
                return before
            await writing.run("keys.revoke", id_of(id), who)
            return await _changed(writing, who, "revoked", before)

    async def rotate(
        self,
        id: str,  # noqa: A002 (as above)
        who: str,
        version: int | None = None,
        *,
        overlap_seconds: int = 0,
    ) -> tuple[KeyRecord, str]:
        """A new key in place of this one, with its secret. The old one is revoked, or expires after the overlap."""
        _check_overlap(overlap_seconds)
        async with announced(self._database, self._announce) as writing:
            old = await _get(writing, id, version)
            _refuse_revoked(old)
            if old.rotated_to is not None:
                msg = f"API key {old.id} was rotated already; rotate {old.rotated_to}, which took its place"
                raise Conflict(msg)
            if old.state is KeyState.EXPIRED:
                msg = f"API key {old.id} has expired; create a new one"
                raise Conflict(msg)
            limits = {**old.dormant_limits, **old.limits}
            form = KeyForm(None, None, old.name, old.user, old.tenant, old.tier, limits, old.expires_at)
            new, secret = await _add(writing, form, who)
            await writing.run("keys.rotate", id_of(id), id_of(new.id), await _end(writing, old, overlap_seconds))
            if not overlap_seconds:
                await writing.run("keys.revoke", id_of(id), who)
            await _changed(writing, who, "rotated", old)
            return new, secret

    async def load(
        self,
        rows: Iterable[object] | AsyncIterable[object],
        who: str,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Create or replace very many keys that exist already, all or none; returns how many came.

        A row has what `create` takes and the ``secret``, or its ``hash`` (SHA-256 in hexadecimal) and ``prefix``.
        """
        through, complaints, reader = 0, Complaints(), KeyReader(self._zones)
        async with announced(self._database, self._announce) as writing:
            await writing.run("keys.start_loading")
            async for batch in batches(rows):
                await reader.look_up(writing, batch)
                # In a thread, because it takes as long as a thousand decisions.
                forms, problems = await asyncio.to_thread(reader.read_many, batch, through)
                complaints.add(problems)
                if not complaints.count:
                    await writing.copy("loading_keys", KeyForm._fields, [*{form.hash: form for form in forms}.values()])
                    await writing.run("keys.load", who)
                    await writing.run("keys.loaded")
                through += len(batch)
                progress(through)
            complaints.refuse()
            await record(writing, who, Kind.API_KEY, EVERYTHING, "loaded", None, {"keys": through})
        return through

    async def _read(self, writing: Writing, data: object, before: KeyRecord | None = None) -> KeyForm:
        problems: list[Problem] = []
        reader = KeyReader(self._zones)
        await reader.look_up(writing, [data])
        form = reader.read(data, problems, before)
        refuse(problems)
        return form


def _check_overlap(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= _MAX_OVERLAP_SECONDS:
        message = f"expected whole seconds from 0 to {_MAX_OVERLAP_SECONDS}, not {short_repr(seconds)}"
        raise InvalidFields([Problem(("overlap_seconds",), message)])


def _refuse_revoked(key: KeyRecord) -> None:
    if key.state is KeyState.REVOKED:
        msg = f"API key {key.id} was revoked by {short_repr(key.revoked_by)}, permanently; create a new one"
        raise Conflict(msg)


async def _end(writing: Writing, key: KeyRecord, overlap_seconds: int) -> datetime | None:
    """When a key that is being rotated expires: after the overlap, if it would live longer."""
    if not overlap_seconds:
        return key.expires_at
    end = await time_now(writing) + timedelta(seconds=overlap_seconds)
    return end if key.expires_at is None else min(end, key.expires_at)


async def _add(writing: Writing, form: KeyForm, who: str) -> tuple[KeyRecord, str]:
    """Make a key. The secret goes to the caller, and nowhere else."""
    secret = new_api_key(secrets.token_bytes(RANDOM_BYTES))
    row = await writing.row("keys.add", hash_of(secret), prefix_of(secret), *form[2:], who)
    assert row is not None  # noqa: S101 (an INSERT that returns)
    made = await _get(writing, str(row["id"]))
    await record(writing, who, Kind.API_KEY, made.id, "created", None, made.as_dict())
    return made, secret


async def _get(statements: Statements, id: str, version: int | None = None) -> KeyRecord:  # noqa: A002 (keys have ids)
    return as_record(found(f"API key {shown_id(id)}", await statements.row("keys.get", id_of(id)), version))


async def _changed(writing: Writing, who: str, verb: str, before: KeyRecord) -> KeyRecord:
    after = await _get(writing, before.id)
    await record(writing, who, Kind.API_KEY, before.id, verb, before.as_dict(), after.as_dict())
    return after
