"""API keys as records, and how a key that the caller sent is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.controlplane.fields import (
    MAX_ID_LENGTH,
    as_json,
    at_most,
    instant_ahead,
    limits_of,
    stays,
    tier,
    tier_names,
    time_now,
)
from headgate.controlplane.overrides import OverrideReader
from headgate.core.api_key import hash_of, looks_like_api_key, prefix_of
from headgate.core.parsing.fields import Fields, unusable
from headgate.errors import Problem, short_repr

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from headgate.core.meter import Zones
    from headgate.ports import Statements

_FIELDS: Final = ("name", "user", "tenant", "tier", "limits", "expires_at")
_LOADED_FIELDS: Final = (*_FIELDS, "secret", "hash", "prefix")
_HASH: Final = re.compile("[0-9a-fA-F]{64}")
_PREFIX: Final = re.compile(r"[!-~]{4,32}")


class KeyState(StrEnum):
    """Whether a key or a token is good."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is kept; the key itself is not."""

    id: str
    prefix: str
    """Its first characters, by which its owner recognises it."""
    name: str | None
    user: str | None
    tenant: str | None
    tier: str | None
    limits: Mapping[str, tuple[str, ...]]
    """Limits in place of a rule's own, by the rule's name."""
    expires_at: datetime | None
    last_used: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    rotated_to: str | None
    """The id of the key that takes its place."""
    version: int
    created_at: datetime
    created_by: str
    state: KeyState
    dormant_limits: Mapping[str, tuple[str, ...]]
    """Those for rules that are not active; each is used again once its rule is."""
    requests: int
    """With this key, in all."""
    requests_today: int
    """On this day, in UTC."""

    def as_dict(self) -> dict[str, Any]:
        """What can be set and what was done, as JSON has it."""
        dormant = ["dormant_limits"] if self.dormant_limits else []
        names = ("id", "prefix", *_FIELDS, "revoked_at", "revoked_by", "rotated_to", *dormant)
        return {name: as_json(getattr(self, name)) for name in names}


def as_record(row: Mapping[str, Any]) -> KeyRecord:
    """A row as a record."""
    values = dict(row)
    user, rotated_to = values.pop("user_id"), values["rotated_to"]
    its_own = {
        "id": str(values["id"]),
        "limits": limits_of(values["limits"]),
        "dormant_limits": limits_of(values["dormant_limits"]),
        "rotated_to": None if rotated_to is None else str(rotated_to),
        "state": KeyState(values["state"]),
    }
    return KeyRecord(**{**values, **its_own}, user=user)


class KeyForm(NamedTuple):
    """A key to write; in the order of the statements, with the column names of the table for loading."""

    hash: bytes | None
    prefix: str | None
    name: str | None
    user_id: str | None
    tenant: str | None
    tier: str | None
    limits: dict[str, tuple[str, ...]]
    expires_at: datetime | None


class KeyReader:
    """Reads keys, knowing which users, tiers and rules there are."""

    def __init__(self, zones: Zones) -> None:
        """`zones` finds the time zones that limits name."""
        self._overrides = OverrideReader(zones)
        self._tiers: Collection[str] = ()
        self._users: Collection[str] = ()
        self._now: datetime

    async def look_up(self, statements: Statements, rows: Iterable[object]) -> None:
        """Get to know what these rows name."""
        mappings = [row for row in rows if isinstance(row, Mapping)]
        await self._overrides.look_up(statements, (row.get("limits") for row in mappings))
        users = {user for row in mappings if isinstance(user := row.get("user"), str) and not unusable(user)}
        self._users = {row["id"] for row in await statements.rows("users.among", [*users])} if users else ()
        self._tiers = await tier_names(statements)
        self._now = await time_now(statements)

    def read(self, data: object, problems: list[Problem], before: KeyRecord | None = None) -> KeyForm:
        """A new key, or one in place of what was there `before`."""
        fields = Fields(data, (), problems, _FIELDS)
        if before is None:
            return self._form(fields, None, None, self._user(fields))
        stays(fields, "user", before.user)
        return self._form(fields, None, None, before.user, before.expires_at)

    def read_many(self, batch: Iterable[object], first: int) -> tuple[list[KeyForm], list[Problem]]:
        """Keys that exist already, with all that is wrong with them; the first is row number `first`."""
        problems: list[Problem] = []
        forms = []
        for number, data in enumerate(batch, first):
            fields = Fields(data, (number,), problems, _LOADED_FIELDS)
            forms.append(self._form(fields, *_kept(fields), self._user(fields)))
        return forms, problems

    def _form(
        self, fields: Fields, hashed: bytes | None, prefix: str | None, user: str | None, kept: datetime | None = None
    ) -> KeyForm:
        return KeyForm(
            hashed,
            prefix,
            fields.text("name", None, at_most(MAX_ID_LENGTH)),
            user,
            fields.text("tenant", None, at_most(MAX_ID_LENGTH)),
            tier(fields, self._tiers),
            self._overrides.read(fields, "limits"),
            instant_ahead(fields, "expires_at", self._now, kept),
        )

    def _user(self, fields: Fields) -> str | None:
        user = fields.text("user", None, at_most(MAX_ID_LENGTH))
        if user is not None and user not in self._users:
            fields.problem(f"there is no user {short_repr(user)}; create it first", "user")
        return user


def _kept(fields: Fields) -> tuple[bytes | None, str | None]:
    """What is kept of a key that exists already. What may be a secret is never repeated."""
    secret, hashed, prefix = (fields.data.get(name) for name in ("secret", "hash", "prefix"))
    if secret is not None:
        if hashed is not None or prefix is not None:
            fields.problem("a key comes with its secret, or with hash and prefix, not with both", "secret")
        elif isinstance(secret, str) and looks_like_api_key(secret):
            return hash_of(secret), prefix_of(secret)
        else:
            fields.problem("this is not a key that headgate has made; its form or its checksum is wrong", "secret")
    elif not isinstance(hashed, str) or not _HASH.fullmatch(hashed):
        fields.problem("a key comes with its secret, or with its SHA-256 as 64 hexadecimal digits", "hash")
    elif not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        fields.problem("beside its hash a key has the first 4 to 32 characters of it", "prefix")
    else:
        return bytes.fromhex(hashed), prefix
    return None, None
