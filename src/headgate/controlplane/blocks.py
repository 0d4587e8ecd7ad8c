"""Blocks: users, API keys and networks that are refused, for good or until a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.controlplane.changes import Kind, announced, nothing, record
from headgate.controlplane.fields import (
    MAX_ID_LENGTH,
    as_json,
    at_most,
    found,
    id_before,
    id_of,
    instant_ahead,
    refuse,
    shown_id,
    stays,
    storable,
    time_now,
)
from headgate.core.address import parse_network
from headgate.core.parsing.fields import Fields
from headgate.errors import Conflict, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from headgate.controlplane.changes import Announce
    from headgate.core.address import Network
    from headgate.ports import Database, Statements, Writing

_SUBJECTS: Final = ("user", "api_key", "network")
_FIELDS: Final = (*_SUBJECTS, "reason", "until")
_MAX_REASON_LENGTH: Final = 1_000


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """A block as it is kept: of one user, one API key, or one network."""

    id: str
    user: str | None
    api_key: str | None
    """The key's id."""
    network: str | None
    """A range in CIDR form; one address is a range of its own."""
    reason: str | None
    until: datetime | None
    version: int
    created_at: datetime
    created_by: str

    def as_dict(self) -> dict[str, Any]:
        """What can be set, as JSON has it."""
        return {name: as_json(getattr(self, name)) for name in ("id", *_FIELDS)}


class Blocks:
    """Everything that is done with blocks. One that has ended is as good as gone."""

    def __init__(self, database: Database, announce: Announce = nothing) -> None:
        """`announce` is called after each change."""
        self._database = database
        self._announce = announce

    async def list(self, *, after: str | None = None, most: int = 50, subject: str | None = None) -> list[BlockRecord]:
        """Blocks by id, from after the id `after`; of one user id, key id, or with one address in their network."""
        behind = id_before(after)
        if subject is None:
            rows = await self._database.rows("blocks.list", behind, most)
        else:
            subjects = (storable(subject), id_of(subject), _network_or_none(subject))
            rows = await self._database.rows("blocks.list_of_subject", behind, most, *subjects)
        return [_record(row) for row in rows]

    async def get(self, id: str) -> BlockRecord:  # noqa: A002 (blocks have ids)
        """One block, or `NotFound`."""
        return await _get(self._database, id)

    async def create(self, data: object, who: str) -> BlockRecord:
        """A new block: ``{"user" | "api_key" | "network": …, "reason": …, "until": "2026-12-31T00:00:00Z"}``."""
        async with announced(self._database, self._announce) as writing:
            form = await _read(writing, data)
            if there := await writing.row("blocks.of", *form.subject):
                msg = f"it is blocked already, by the block {there['id']}; change that one"
                raise Conflict(msg)
            await writing.run("blocks.drop_ended_of", *form.subject)
            row = await writing.row("blocks.add", *form.subject, form.reason, form.until, who)
            assert row is not None  # noqa: S101 (an INSERT that returns)
            made = await _get(writing, str(row["id"]))
            await record(writing, who, Kind.BLOCK, made.id, "created", None, made.as_dict())
            return made

    async def replace(self, id: str, data: object, who: str, version: int | None = None) -> BlockRecord:  # noqa: A002 (as above)
        """Change reason and end to what `data` says."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            problems: list[Problem] = []
            fields = Fields(data, (), problems, _FIELDS)
            for name in _SUBJECTS:
                stays(fields, name, getattr(before, name))
            reason, until = _reason(fields), instant_ahead(fields, "until", await time_now(writing), before.until)
            refuse(problems)
            await writing.run("blocks.set", id_of(id), reason, until)
            after = await _get(writing, id)
            await record(writing, who, Kind.BLOCK, after.id, "changed", before.as_dict(), after.as_dict())
            return after

    async def delete(self, id: str, who: str, version: int | None = None) -> None:  # noqa: A002 (as above)
        """End a block now."""
        async with announced(self._database, self._announce) as writing:
            before = await _get(writing, id, version)
            await writing.run("blocks.delete", id_of(id))
            await record(writing, who, Kind.BLOCK, before.id, "deleted", before.as_dict(), None)

    async def sweep(self) -> int:
        """Delete blocks that have ended; returns how many. Not announced: every process knows when a block ends."""
        async with self._database.change() as writing:
            row = await writing.row("blocks.sweep")
        assert row is not None  # noqa: S101 (an aggregate has a row)
        ended: int = row["ended"]
        return ended


class _Subject(NamedTuple):
    """What is blocked: one of these."""

    user: str | None
    api_key: UUID | None
    network: Network | None


class _Form(NamedTuple):
    """A block to write, as the caller sent it."""

    subject: _Subject
    reason: str | None
    until: datetime | None


async def _read(writing: Writing, data: object) -> _Form:
    problems: list[Problem] = []
    fields = Fields(data, (), problems, _FIELDS)
    if fields.is_mapping and sum(map(fields.has, _SUBJECTS)) != 1:
        fields.problem("a block is of one user, one api_key or one network")
    key = fields.text("api_key", None)
    key_id = None if key is None else id_of(key)
    if key is not None and await writing.row("keys.get", key_id) is None:
        fields.problem(f"there is no API key {shown_id(key)}; name it by its id", "api_key")
    subject = _Subject(fields.text("user", None, at_most(MAX_ID_LENGTH)), key_id, _network(fields))
    form = _Form(subject, _reason(fields), instant_ahead(fields, "until", await time_now(writing)))
    refuse(problems)
    return form


def _reason(fields: Fields) -> str | None:
    return fields.text("reason", None, at_most(_MAX_REASON_LENGTH))


def _network(fields: Fields) -> Network | None:
    text = fields.text("network", None)
    try:
        return None if text is None else parse_network(text)
    except ValueError as error:
        fields.problem(str(error), "network")
        return None


def _network_or_none(text: str) -> Network | None:
    try:
        return parse_network(text)
    except ValueError:
        return None


async def _get(statements: Statements, id: str, version: int | None = None) -> BlockRecord:  # noqa: A002 (blocks have ids)
    return _record(found(f"block {shown_id(id)}", await statements.row("blocks.get", id_of(id)), version))


def _record(row: Mapping[str, Any]) -> BlockRecord:
    values = dict(row)
    user, key, network = values.pop("user_id"), values.pop("api_key"), values.pop("network")
    return BlockRecord(
        **{**values, "id": str(values["id"])},
        user=user,
        api_key=None if key is None else str(key),
        network=None if network is None else str(network),
    )
