"""Who may use the admin API: tokens with roles."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from enum import StrEnum
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.changes import Kind, record
from headgate.controlplane.fields import as_json, found, id_of, instant_ahead, refuse, shown_id, time_now
from headgate.controlplane.key_records import KeyState
from headgate.core.api_key import RANDOM_BYTES, hash_of, looks_like_token, new_token, prefix_of
from headgate.core.parsing.fields import Fields, name_problem
from headgate.errors import Conflict, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from headgate.ports import Database, Statements

_FIELDS: Final = ("name", "role", "expires_at")
_BOOTSTRAP: Final = "bootstrap"
_REMEMBERED_SECONDS: Final = 1.0
_MAX_REMEMBERED: Final = 1_000


class Role(StrEnum):
    """What a caller may do; each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether this role may do what takes `needed`."""
        order = tuple(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller with a valid token."""

    name: str
    """As it stands in change records: ``token:ci``."""
    role: Role
    token_id: str | None
    """None for the token from the settings."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as it is kept; the token itself is not."""

    id: str
    name: str
    role: Role
    prefix: str
    expires_at: datetime | None
    last_used: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    created_at: datetime
    created_by: str
    state: KeyState

    def as_dict(self) -> dict[str, Any]:
        """What was set and done, as JSON has it."""
        names = ("id", "prefix", *_FIELDS, "revoked_at", "revoked_by")
        return {name: as_json(getattr(self, name)) for name in names}


class Access:
    """Tokens, and whom they let in."""

    def __init__(self, database: Database, bootstrap_token: str | None = None) -> None:
        """`bootstrap_token` is an admin's, needs no database, and is how the first token is made."""
        self._database = database
        self._bootstrap = hash_of(bootstrap_token) if bootstrap_token else None
        self._remembered: dict[bytes, tuple[float, Caller]] = {}

    async def authenticate(self, token: str) -> Caller | None:
        """Who presents this token; None if it is unknown, expired or revoked. Remembered for a second."""
        presented = hash_of(token)
        if self._bootstrap is not None and compare_digest(presented, self._bootstrap):
            return Caller(f"token:{_BOOTSTRAP}", Role.ADMIN, None)
        if not looks_like_token(token):
            return None
        now = asyncio.get_running_loop().time()
        until, caller = self._remembered.get(presented, (now, None))
        return caller if now < until else await self._look_up(presented, now)

    def is_known(self, token: str) -> bool:
        """Whether this token has been good lately. It may have expired since: only `authenticate` lets a caller in."""
        presented = hash_of(token)
        if self._bootstrap is not None and compare_digest(presented, self._bootstrap):
            return True
        return presented in self._remembered

    async def _look_up(self, presented: bytes, now: float) -> Caller | None:
        row = await self._database.row("tokens.find", presented)
        if row is None or not compare_digest(presented, row["hash"]):
            self._remembered.pop(presented, None)
            return None
        if row["unnoted"]:
            await self._database.row("tokens.used", row["id"])
        caller = Caller(f"token:{row['name']}", Role(row["role"]), str(row["id"]))
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        # From before it was looked up, so that whatever is revoked meanwhile ends in time.
        self._remembered[presented] = (now + _REMEMBERED_SECONDS, caller)
        return caller

    async def list(self) -> list[TokenRecord]:
        """All tokens, the newest first."""
        return [_record(row) for row in await self._database.rows("tokens.list")]

    async def create(self, data: object, who: str) -> tuple[TokenRecord, str]:
        """A new token ``{"name": …, "role": …, "expires_at": …}``, and the secret itself, shown only now."""
        problems: list[Problem] = []
        async with self._database.change() as writing:
            fields = Fields(data, (), problems, _FIELDS)
            for name in ("name", "role"):
                if fields.is_mapping and not fields.has(name):
                    fields.problem(f"a token needs a {name}", name)
            name = fields.text("name", "", _token_name_problem)
            role = fields.choice("role", Role, Role.VIEWER)
            expires_at = instant_ahead(fields, "expires_at", await time_now(writing))
            refuse(problems)
            if await writing.row("tokens.named", name):
                msg = f"there is a token {name!r} already; revoke it first, or choose another name"
                raise Conflict(msg)
            secret = new_token(secrets.token_bytes(RANDOM_BYTES))
            added = await writing.row(
                "tokens.add", name, role.value, hash_of(secret), prefix_of(secret), expires_at, who
            )
            assert added is not None  # noqa: S101 (an INSERT that returns)
            made = await _get(writing, str(added["id"]))
            await record(writing, who, Kind.TOKEN, made.id, "created", None, made.as_dict())
        return made, secret

    async def revoke(self, id: str, who: str) -> TokenRecord:  # noqa: A002 (tokens have ids)
        """End a token. One that is revoked already stays as it is."""
        async with self._database.change() as writing:
            before = await _get(writing, id)
            if before.state is KeyState.REVOKED:
                return before
            await writing.run("tokens.revoke", id_of(id), who)
            after = await _get(writing, id)
            await record(writing, who, Kind.TOKEN, before.id, "revoked", before.as_dict(), after.as_dict())
        self._remembered.clear()
        return after


def _token_name_problem(name: str) -> str | None:
    if name.lower() == _BOOTSTRAP:
        return f"{name!r} is what the token from the settings is called; choose another name"
    return name_problem(name)


async def _get(statements: Statements, id: str) -> TokenRecord:  # noqa: A002 (tokens have ids)
    return _record(found(f"token {shown_id(id)}", await statements.row("tokens.get", id_of(id))))


def _record(row: Mapping[str, Any]) -> TokenRecord:
    return TokenRecord(**{**row, "id": str(row["id"]), "role": Role(row["role"]), "state": KeyState(row["state"])})
