"""`headgate db`, against real databases."""

from __future__ import annotations

import json
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.postgres.migrations import known
from headgate.cli.commands import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres


def test_a_database_is_migrated_once(
    postgres: Postgres, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`db status` says by its exit code whether migrations are missing, and `db migrate` carries them out."""
    monkeypatch.setenv("HEADGATE_DATABASE_URL", postgres.new_database(empty=True))
    assert run(["db", "status"]) == 2
    assert "0001 control_plane not yet" in " ".join(capsys.readouterr().out.split())
    assert run(["db", "migrate"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("done  0001 control_plane\n")
    assert f"The schema is up to date, by {len(known())} migrations.\n" in out
    assert run(["db", "migrate"]) == 0
    assert capsys.readouterr().out == "Nothing to do.\n"
    assert run(["db", "status"]) == 0
    assert "The schema is up to date." in capsys.readouterr().out


def test_programs_get_json(postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json both commands say the same for programs, and --url names the database."""
    url = postgres.new_database(empty=True)
    said = []
    for verb in ("status", "migrate", "status"):
        run(["db", verb, "--json", "--url", url])
        said.append(json.loads(capsys.readouterr().out))
    assert said[0]["pending"] == len(known())
    assert said[0]["migrations"][0] == {"number": 1, "name": "control_plane", "at": None}
    assert said[1]["carried_out"] == [
        {"number": each["number"], "name": each["name"]} for each in said[0]["migrations"]
    ]
    assert said[2]["pending"] == 0
    assert said[2]["migrations"][0]["at"].endswith("+00:00")


def test_the_embedded_database_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is named, the database of the data directory is meant, as for `headgate backup`."""
    with TemporaryDirectory() as folder:  # in a short path, as sockets want it
        monkeypatch.setenv("HEADGATE_DATA_DIR", folder)
        assert run(["db", "migrate", "--url", "embedded://"]) == 0
        capsys.readouterr()
        assert run(["db", "status"]) == 0
    assert "The schema is up to date." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "no database is named; set HEADGATE_DATABASE_URL"),
        ("postgresql://me:secret@127.0.0.1:1/none", "the database does not answer (Connection refused)"),
        ("postgresql://me:sec/ret@127.0.0.1/none", "in a password %40 for @"),
        ("postgresql://me:secret@127.0.0.1/none?sslmode=perhaps", "sslmode"),
        ("mysql://secret", "that is not the address of a database"),
        (
            "embedded:///dev/null/secret",
            "data cannot be kept in /dev/null/secret: Not a directory; set HEADGATE_DATA_DIR",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    url: str, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No database, none that answers, or an address that is none: exit code 1, and no password repeated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_DATABASE_URL", url)
    assert run(["db", "status"]) == 1
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1
    assert "me:sec" not in shown
