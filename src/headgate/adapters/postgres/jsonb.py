"""JSON in PostgreSQL as Python values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncpg

_VERSION: Final = b"\x01"  # stands before the text in the binary form, the only one that COPY takes here


async def prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Let a connection turn the one into the other. Its number is the same in every PostgreSQL, so poolers are safe."""
    await connection.set_type_codec("jsonb", encoder=_encoded, decoder=_decoded, schema="pg_catalog", format="binary")


def _encoded(value: object) -> bytes:
    return _VERSION + json.dumps(value).encode()


def _decoded(data: bytes) -> object:
    return json.loads(data[len(_VERSION) :])
