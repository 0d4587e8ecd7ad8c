"""JSON in PostgreSQL as Python values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncpg

_VERSION: Final = b"\x01"  # stands before the text in the binary form, the only one that COPY takes here
_SHOWN: Final = 200


async def prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Let a connection turn the one into the other. Its number is the same in every PostgreSQL, so poolers are safe."""
    await connection.set_type_codec("jsonb", encoder=encoded, decoder=_decoded, schema="pg_catalog", format="binary")


def encoded(value: object) -> bytes:
    """A value in the binary form of jsonb."""
    return _VERSION + json.dumps(value).encode()


def _decoded(data: bytes) -> object:
    """Written by hand, it may have thousands of digits or levels, which Python does not read: then it is a text."""
    text = data[len(_VERSION) :]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text[:_SHOWN].decode(errors="replace")
