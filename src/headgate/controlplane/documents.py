"""Documents: what all processes work by, made, read, and taken from the database."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import InvalidFields, Problem
from headgate.ports import BLOCKS, RULES, Document, digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.ports import Statements

DIGEST: Final = "digest"
BODY: Final = "body"
FORMAT: Final = "format"
VERSION: Final = 1
"""The version of the format that is written; see docs/reference/formats.md."""
NO_RULES: Final[Mapping[str, Sequence[object]]] = MappingProxyType({"rules": ()})
"""The rule set that holds where it is known that none was published."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""Bytes of JSON. A hundred thousand rules are an eighth of it."""
_FOOTER: Final = re.compile(rb"\nheadgate document format ([0-9]{1,9})\n\Z")
_MAX_FOOTER: Final = 64


def make(kind: str, number: int, data: object, lineage: str = "") -> Document:
    """The document of some data. Takes seconds for a hundred thousand rules: call it in a thread.

    The version of the format stands after the compressed JSON, where older versions do not look.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    body = zlib.compress(text.encode(), level=6) + b"\nheadgate document format %d\n" % VERSION
    return Document(kind, number, body, digest_of(kind, number, body), lineage)


def read(document: Document) -> Any:  # noqa: ANN401 (whatever the JSON says)
    """The data of a document, or `InvalidFields` with ``digest``, ``format`` or ``body``, whichever is wrong."""
    if not document.is_intact:
        raise _wrong(DIGEST, "it is not what was published: the digest differs")
    footer = _FOOTER.search(document.body[-_MAX_FOOTER:])
    version = 1 if footer is None else int(footer[1])
    if version > VERSION:
        raise _wrong(FORMAT, f"it has format {version}, and this headgate reads format {VERSION}; install a newer one")
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(document.body, MAX_BYTES)
        if inflating.unconsumed_tail:
            raise _wrong(BODY, f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
        if not inflating.eof:
            raise _wrong(BODY, "it ends too early")
        return json.loads(text)
    except zlib.error as error:
        raise _wrong(BODY, f"it cannot be decompressed ({error})") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, numbers or nesting without end
        if isinstance(error, InvalidFields):
            raise
        raise _wrong(BODY, f"it is no JSON ({type(error).__name__})") from error


def _wrong(part: str, message: str) -> InvalidFields:
    return InvalidFields([Problem((part,), message)])


async def stored(database: Statements, kind: str) -> Document | None:
    """The newest document of a kind as the database has it; None if nothing was published yet."""
    if kind == RULES:
        row = await database.row("feed.rules")
        return None if row is None else Document(RULES, row["number"], row["body"], row["digest"], row["lineage"])
    row = await database.row("feed.blocks")
    assert row is not None  # noqa: S101 (aggregates always are)
    return await asyncio.to_thread(make, BLOCKS, row["number"], row["blocks"], row["lineage"])
