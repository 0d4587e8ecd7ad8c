"""Backups that cannot be used: each is refused with a sentence, and nothing is changed."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.backups import contents, execute, fill

from headgate.adapters.postgres import known
from headgate.backup import manifest as manifests
from headgate.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.postgres import Postgres

NAME = "2026-01-31T120000Z-beef"


@pytest.fixture(scope="module")
def made(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good backup, to be copied."""
    place = tmp_path_factory.mktemp("good")
    url = postgres.new_database()
    fill(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADGATE_DATABASE_URL", url)
        assert run(["backup", "--to", str(place)]) == 0
    (folder,) = place.glob("backups/*")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, under a name of its own."""
    copy = tmp_path / "backups" / NAME
    shutil.copytree(made, copy)
    _change(copy, lambda manifest: replace(manifest, name=NAME), old=made.name)
    monkeypatch.setenv("HEADGATE_ARCHIVE_URL", str(tmp_path))
    monkeypatch.setenv("HEADGATE_REDIS_URL", "memory://")
    return copy


@pytest.fixture(scope="module")
def used(postgres: Postgres) -> str:
    """The address of a database that nothing is ever restored into."""
    url = postgres.new_database()
    execute(url, "INSERT INTO users (id) VALUES ('u1')")
    return url


def _change(
    folder: Path, change: Callable[[manifests.Manifest], manifests.Manifest], old: str = NAME
) -> manifests.Manifest:
    """Write another manifest, with a valid checksum, as a deliberate change would have."""
    file = folder / manifests.NAME
    changed = change(manifests.parse(old, file.read_bytes()))
    file.write_bytes(manifests.encode(changed))
    return changed


def _change_table(folder: Path, table: str, change: Callable[[bytes], bytes], **fields: Any) -> None:  # noqa: ANN401 (of `File`)
    """Write another table, and what the manifest says of it."""
    file = folder / f"{table}.copy.gz"
    text = change(gzip.decompress(file.read_bytes()))
    file.write_bytes(gzip.compress(text))
    packed = file.read_bytes()
    digest = sha256(packed).hexdigest()

    def in_manifest(manifest: manifests.Manifest) -> manifests.Manifest:
        true = {each.holds: replace(each, text=len(text), size=len(packed), sha256=digest) for each in manifest.files}
        files = [replace(true[table], **fields) if each.holds == table else each for each in manifest.files]
        return replace(manifest, files=tuple(files))

    _change(folder, in_manifest)


def _only(places: Sequence[int], text: bytes) -> bytes:
    """The rows of a table with the columns at these places."""
    rows = (line.split(b"\t") for line in text.splitlines())
    return b"".join(b"\t".join(row[place] for place in places) + b"\n" for row in rows)


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _edit(folder: Path, **members: object) -> None:
    """Edit the manifest by hand, without a checksum to go with it."""
    file = folder / manifests.NAME
    file.write_text(json.dumps(json.loads(file.read_text()) | members))


def _of_a_newer_schema(manifest: manifests.Manifest) -> manifests.Manifest:
    return replace(manifest, schema=known()[-1].number + 1, headgate="99.0")


def _with_file(**fields: Any) -> Callable[[Path], object]:  # noqa: ANN401 (of `File`)
    def change(folder: Path) -> object:
        return _change(folder, lambda manifest: replace(manifest, files=(replace(manifest.files[0], **fields),)))

    return change


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda folder: _flip(folder / "events.copy.gz"), "events.copy.gz is damaged: its checksum"),
        (lambda folder: (folder / "users.copy.gz").unlink(), "users.copy.gz cannot be read: No such file"),
        (lambda folder: (folder / "users.copy.gz").write_bytes(b""), "users.copy.gz is damaged: it has 0 bytes"),
        (lambda folder: _edit(folder, change=10**6), "is damaged: its checksum differs"),
        (lambda folder: _edit(folder, format=2, headgate="99.0"), "has format 2, and this headgate reads format 1"),
        (lambda folder: _edit(folder, format="1"), "has an unknown format"),
        (lambda folder: _change(folder, _of_a_newer_schema), "install headgate 99.0 or newer"),
        (lambda folder: (folder / manifests.NAME).write_text("[]"), "is not the manifest of a backup"),
        (lambda folder: (folder / manifests.NAME).write_text("[" * 10**5), "is not the manifest of a backup"),
        (lambda folder: (folder / manifests.NAME).write_bytes(b" " * 2**21), "is too large"),
        (lambda folder: _change(folder, lambda manifest: replace(manifest, name="other")), "is that of 'other'"),
        (_with_file(holds="../../etc/passwd"), "has an unexpected field or value"),
        (_with_file(holds="pg_authid"), "has a table pg_authid, which this headgate does not know"),
        (_with_file(columns=('name"); DROP TABLE tiers; --',)), "has an unexpected field or value"),
        (_with_file(columns=("price_in_gold",)), "column price_in_gold in tiers, which this headgate does not know"),
        (_with_file(size=-1), "has an unexpected field or value"),
        (_with_file(count=77), "tiers has 2 rows instead of 77"),
        (
            lambda folder: _change_table(folder, "users", lambda text: text + b"unknown\n"),
            "users: the database rejects the values",
        ),
        (lambda folder: _change_table(folder, "tiers", lambda text: text, text=1), "tiers.copy.gz is damaged"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused(
    used: str,
    folder: Path,
    harm: Callable[[Path], object],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever is wrong with a backup is said in one sentence, and the database stays as it was."""
    before = contents(used)
    harm(folder)
    monkeypatch.setenv("HEADGATE_DATABASE_URL", used)
    assert run(["restore", NAME, "--replace", "--yes"]) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert "bug" not in said
    assert contents(used) == before


def test_names_lead_nowhere_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no name of a backup is refused before anything is looked at."""
    for name in ("../secrets", "a/b", "", ".", "x" * 65, "a b", "-x"):
        assert run(["backup", "verify", "--", name]) == 1
        assert "is not the name of a backup" in capsys.readouterr().err
    assert run(["backup", "verify", NAME]) == 0
    assert folder.name in capsys.readouterr().out


def test_what_cannot_be_used_is_said_beside_the_list(
    folder: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One backup that is damaged does not hide the others, and is not the latest."""
    shutil.copytree(made, folder.parent / made.name)
    _edit(folder, change=1)
    assert run(["backup", "list"]) == 0
    said = capsys.readouterr()
    assert made.name in said.out
    assert NAME not in said.out
    assert f"the backup {NAME} cannot be used" in said.err
    assert run(["backup", "verify", "latest"]) == 0
    assert made.name in capsys.readouterr().out


def test_the_latest_is_of_the_same_database(
    postgres: Postgres,
    made: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a place with backups of several databases, `latest` is never that of another one."""
    later = "2999-01-01T00:00:00+00:00"
    shutil.copytree(made, folder.parent / made.name)
    _change(folder, lambda manifest: replace(manifest, origin="0badc0de-0000-4000-8000-000000000000", at=later))
    ours, used, empty = postgres.new_database(), postgres.new_database(), postgres.new_database()
    for url in (ours, used):
        execute(url, "INSERT INTO users (id) VALUES ('u1')")
    execute(used, "UPDATE origin SET id = gen_random_uuid()")
    words = ["restore", "latest", "--replace", "--yes", "--json"]
    for url, sentence in ((used, "no backup of this database"), (empty, "backups of several databases")):
        monkeypatch.setenv("HEADGATE_DATABASE_URL", url)
        before = contents(url)
        assert run(words) == 1
        said = capsys.readouterr().err
        assert sentence in said
        assert f"{NAME} of 0badc0de" in said
        assert made.name in said
        assert contents(url) == before
    assert run(["backup", "list"]) == 0
    assert "0badc0de" in capsys.readouterr().out
    monkeypatch.setenv("HEADGATE_DATABASE_URL", ours)
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["name"] == made.name


@pytest.mark.parametrize("into", ["an empty database", "a database in use"])
def test_an_older_backup_is_migrated(
    postgres: Postgres,
    folder: Path,
    into: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A backup of an older schema is restored into that schema, which is then brought up to date."""
    tables = re.findall(r"^CREATE TABLE (\w+)", known()[0].sql, re.MULTILINE)
    later = "".join(migration.sql for migration in known()[1:])
    added = re.findall(r"^ALTER TABLE (\w+) ADD COLUMN (\w+)", later, re.MULTILINE)
    assert {("events", "sequence"), ("events", "extra"), ("api_keys", "requests")} <= set(added)
    manifest = manifests.parse(NAME, (folder / manifests.NAME).read_bytes())
    for file in manifest.files:
        kept = [place for place, column in enumerate(file.columns) if (file.holds, column) not in added]
        if len(kept) < len(file.columns):
            columns = tuple(file.columns[place] for place in kept)
            _change_table(folder, file.holds, partial(_only, kept), columns=columns)
    _change(
        folder,
        lambda found: replace(found, schema=1, files=tuple(file for file in found.files if file.holds in tables)),
    )
    url = postgres.new_database(empty=into == "an empty database")
    if into == "a database in use":
        execute(url, "INSERT INTO users (id) VALUES ('u1')")
    monkeypatch.setenv("HEADGATE_DATABASE_URL", url)
    assert run(["restore", NAME, "--replace", "--yes"]) == 0, capsys.readouterr().err
    assert "The backup had schema 1; it was migrated." in capsys.readouterr().out
    assert run(["db", "status"]) == 0
    assert execute(url, "SELECT id FROM users") == [("u1",)]
    assert execute(url, "SELECT count(*), count(extra), max(sequence) FROM events") == [(1_500, 0, 0)]
