"""Formats carry versions: what a newer version wrote is refused or waits, with a sentence, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.spool import batch, read_all

from headgate.adapters import event_json
from headgate.adapters.saved_documents import SavedDocuments
from headgate.adapters.spool import EVENTS, Writer, spooled_events
from headgate.adapters.spool import log as spool_log
from headgate.adapters.spool import reader as spool_reader
from headgate.archive import part
from headgate.backup import manifest
from headgate.controlplane import documents
from headgate.controlplane.document_applier import ActiveDocument, DocumentApplier, DocumentOrigin, Refusal
from headgate.core.delivery_ledger import DeliveryLedger
from headgate.core.event import EventBatch
from headgate.dataplane.reservations import Reserved
from headgate.edge.http import reservations
from headgate.edge.http.reservations import ReservationTokens
from headgate.errors import ArchiveError, InvalidFields, NotFound
from headgate.ports import RULES, Document, digest_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
SCHEMA: Final = PAGE.with_name("event.schema.json")
VERSIONS: Final = {
    "documents": documents.VERSION,
    "spool": spool_log.VERSION,
    "reservation tokens": reservations.VERSION,
    "events as JSON": event_json.VERSION,
    "backups": manifest.FORMAT,
    "archives": part.FORMAT,
}


def _newer(document: Document) -> Document:
    body = document.body.replace(b"format %d\n" % documents.VERSION, b"format %d\n" % (documents.VERSION + 1))
    return document._replace(body=body, digest=digest_of(document.kind, document.number, body))


def test_the_page_has_the_version_of_each_format() -> None:
    """The table of formats says which version this one writes."""
    rows = dict(re.findall(r"^\| ([^|]+?) \| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name: int(rows[name]) for name in VERSIONS} == VERSIONS
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema["properties"]["version"]["const"] == event_json.VERSION
    assert schema["$id"] == f"urn:headgate:event:{event_json.VERSION}"


def test_a_document_without_a_version_has_the_first(tmp_path: Path) -> None:
    """Versions that wrote none are read; one that knows of none finds what it expects before the version."""
    made = documents.make(RULES, 7, {"rules": []}, "l1")
    body, _, footer = made.body.partition(b"\nheadgate document format ")
    assert footer == b"%d\n" % documents.VERSION
    assert documents.read(Document(RULES, 7, body, digest_of(RULES, 7, body), "l1")) == {"rules": []}
    SavedDocuments(tmp_path).write(made)
    assert SavedDocuments(tmp_path).read(RULES) == made


def test_a_newer_document_is_refused_and_the_active_one_stays(caplog: pytest.LogCaptureFixture) -> None:
    """The log names both versions; another copy is not asked for."""
    active: list[Any] = []

    async def offer() -> DocumentApplier:
        applier = DocumentApplier({RULES: lambda data, _number: active.append(data)}, None)
        assert await applier.take(RULES, documents.make(RULES, 16, {"rules": [1]}, "l1"), DocumentOrigin.FEED) is None
        newer = _newer(documents.make(RULES, 17, {"rules": [2]}, "l1"))
        assert await applier.take(RULES, newer, DocumentOrigin.FEED) is Refusal.FORMAT
        return applier

    applier = asyncio.run(offer())
    assert active == [{"rules": [1]}]
    assert applier.state[RULES] == ActiveDocument(DocumentOrigin.FEED, 16)
    assert applier.has_refused(RULES, "l1", 17)
    sentence = "it has format 2, and this headgate reads format 1; install a newer one"
    assert caplog.messages == [f"rules 17 refused, 16 stays active: {sentence}"]


def test_a_damaged_newer_document_is_damaged() -> None:
    """The digest is looked at first."""
    newer = _newer(documents.make(RULES, 17, {"rules": []}))
    with pytest.raises(InvalidFields, match="digest differs"):
        documents.read(newer._replace(digest=bytes(32)))


@pytest.fixture
def of_two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spool of a process that has ended: ten events, and ten that a newer version wrote."""
    writer = Writer(tmp_path, {EVENTS: 2**24})
    writer.append(EVENTS, batch(0, 10))
    writer.write()
    with monkeypatch.context() as newer:
        newer.setattr(spool_log, "_MARK", b"hgf%d" % (spool_log.VERSION + 1))
        writer.append(EVENTS, batch(10, 10))
        writer.close()
    return tmp_path


def test_newer_frames_wait_in_the_spool(of_two_versions: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are not lost: what is before them is stored, they count as spooled, and a newer version stores them."""
    caplog.set_level(logging.WARNING, "headgate")
    stream = spooled_events(of_two_versions, ["one"])
    assert read_all(stream, "one") == list(range(10))
    for _ in range(3):
        stream.look()
        assert stream.take("one") is None
    assert stream.ledger("one") == DeliveryLedger(stored=10, spooled=10)
    (said,) = caplog.messages
    assert said.endswith("has events in format 2, and this headgate reads format 1; they wait for a newer one")


def test_a_newer_version_goes_on_where_the_older_one_stopped(
    of_two_versions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the offset of the older one, and stores what that could not read."""
    assert read_all(spooled_events(of_two_versions, ["one"]), "one") == list(range(10))
    monkeypatch.setattr(spool_reader, "VERSION", spool_log.VERSION + 1)
    stream = spooled_events(of_two_versions, ["one"])
    assert read_all(stream, "one") == list(range(10, 20))
    assert stream.ledger("one") == DeliveryLedger(stored=20)


def test_an_offset_of_a_newer_version_is_read(of_two_versions: Path) -> None:
    """Members that it has added are passed over: no event is stored a second time."""
    assert read_all(spooled_events(of_two_versions, ["one"]), "one") == list(range(10))
    (file,) = of_two_versions.glob("*/events/one.place")
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "added": [1]}))
    assert read_all(spooled_events(of_two_versions, ["one"]), "one") == []


def test_a_newer_reservation_is_refused_with_a_sentence() -> None:
    """It can still be settled by a service that is upgraded; one that is no token of ours is unknown, as before."""
    tokens = ReservationTokens("secret")
    token = tokens.write(Reserved("id", 1, 2, ()))
    assert "." not in token
    assert tokens.read(token).id == "id"
    with pytest.raises(
        NotFound, match=r"has format 2, and this service reads format 1; .* send it to a service that is"
    ):
        tokens.read(f"2.{token}")
    with pytest.raises(NotFound, match="there is no such reservation"):
        tokens.read(f"x.{token}")


def test_events_as_json_say_their_version() -> None:
    """Consumers can tell what they read."""
    made = batch(0, 1)
    assert isinstance(made, EventBatch)
    said = json.loads(event_json.event_json(made.events[0], made))
    assert (said["schema"], said["version"]) == (event_json.SCHEMA, event_json.VERSION)


def test_newer_manifests_are_refused() -> None:
    """Of a backup and of an archive: the sentence says what to install."""
    with pytest.raises(ArchiveError, match=r"has format 2, and this headgate reads format 1; install '99\.0' or newer"):
        manifest.parse("b", json.dumps({"format": 2, "headgate": "99.0"}).encode())
    with pytest.raises(
        ArchiveError, match="not of format 1; install the headgate version that wrote it, or a newer one"
    ):
        part.part_of({"format": 2}, "events/2026-05/1")
