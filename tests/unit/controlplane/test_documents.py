"""Documents as they travel: whatever is not exactly what was published is refused."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from headgate.controlplane import documents
from headgate.controlplane.documents import make, read
from headgate.errors import InvalidFields
from headgate.ports import Document, digest_of

DATA = {"tiers": {"frei": {"price": 0}}, "rules": [{"name": "ü", "limits": "5/hour"}]}


def sealed(body: bytes, kind: str = "rules", number: int = 7) -> Document:
    """A document with the right digest of whatever it holds."""
    return Document(kind, number, body, digest_of(kind, number, body), "l1")


def test_what_is_made_is_read() -> None:
    """A document says what it was made of, and the same data make the same document."""
    document = make("rules", 7, DATA, "l1")
    assert read(document) == DATA
    assert document == make("rules", 7, DATA, "l1")
    assert document.id == ("l1", 7, document.digest)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "blocks"},
        {"number": 8},
        {"digest": b""},
        {"digest": bytes(32)},
        {"body": b""},
        {"body": make("rules", 7, DATA).body[:-1]},
        {"body": make("rules", 7, {}).body},
        {"body": make("rules", 7, DATA).body + b"\0"},
    ],
    ids=str,
)
def test_another_document_cannot_pass_for_it(change: dict[str, Any]) -> None:
    """The digest is of kind, number and every byte."""
    with pytest.raises(InvalidFields, match="digest: it is not what was published"):
        read(make("rules", 7, DATA)._replace(**change))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "ends too early"),
        (b"not compressed", "cannot be decompressed"),
        (zlib.compress(b'{"rules": []}')[:-4], "ends too early"),
        (zlib.compress(b""), "is no JSON"),
        (zlib.compress(b"{"), "is no JSON"),
        (zlib.compress(b"\xff\xfe\xfd"), "is no JSON"),
        (zlib.compress(b"[" * 100_000), "is no JSON"),
        (zlib.compress(b"9" * 10_000), "is no JSON"),
    ],
    ids=range(8),
)
def test_what_cannot_be_read_is_refused(body: bytes, says: str) -> None:
    """A document with a valid digest and nonsense inside is refused in a sentence."""
    with pytest.raises(InvalidFields, match=says):
        read(sealed(body))


def test_a_document_that_swells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small it arrives, no more than a bound is decompressed."""
    monkeypatch.setattr(documents, "MAX_BYTES", 1024 * 1024)
    text = json.dumps("x" * (1024 * 1024)).encode()
    with pytest.raises(InvalidFields, match="larger than 1 MiB"):
        read(sealed(zlib.compress(text)))
    assert len(zlib.compress(text)) < 2_000
