"""Files of users and keys, as `headgate users load` and `headgate keys load` read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.cli import commands
from headgate.cli.bulk_load import KEYS, USERS, rows
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path


def test_columns_become_users(tmp_path: Path) -> None:
    """A column named overrides.RULE is a limit of a user's own; an empty field is none."""
    file = tmp_path / "users.csv"
    file.write_text('id,tier,overrides.search\nu1,pro,\n"u,2",,5/minute\n', encoding="utf-8-sig")
    assert list(rows(file, USERS)) == [{"id": "u1", "tier": "pro"}, {"id": "u,2", "overrides": {"search": "5/minute"}}]


def test_lines_become_users(tmp_path: Path) -> None:
    """Each line of a JSONL file that is not empty is a user."""
    file = tmp_path / "users.jsonl"
    file.write_text('{"id": "u1", "tier": "pro"}\n\n{"id": "ü2", "overrides": {"a": ["1/day"]}}')
    assert list(rows(file, USERS)) == [{"id": "u1", "tier": "pro"}, {"id": "ü2", "overrides": {"a": ["1/day"]}}]


def test_columns_become_keys(tmp_path: Path) -> None:
    """A key needs a secret or a hash, and a column named limits.RULE is a limit of its own."""
    file = tmp_path / "keys.csv"
    file.write_text("hash,prefix,user,limits.search\nab,hg_,u1,5/minute\ncd,hg_,,\n")
    first = {"hash": "ab", "prefix": "hg_", "user": "u1", "limits": {"search": "5/minute"}}
    assert list(rows(file, KEYS)) == [first, {"hash": "cd", "prefix": "hg_"}]
    file.write_text("user\nu1\n")
    with pytest.raises(InvalidRequest, match="there is no column secret or hash"):
        list(rows(file, KEYS))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("u.csv", "user,tier\nu1,pro\n", "'user' is no column; the first line names the columns: id, tier"),
        ("u.csv", "tier\npro\n", "there is no column id"),
        ("u.csv", "", "there is no column id"),
        ("u.csv", "id,tier\nu1\n", "u.csv:2: the line has not as many columns as the first one"),
        ("u.csv", "id,tier\nu1,a,b\n", "u.csv:2: the line has not as many columns as the first one"),
        ("u.csv", 'id,tier\n"u1"x,a\n', "u.csv:2: "),
        ("u.csv", 'id,"tier"x\n', "u.csv:1: "),
        ("u.csv", "id\n\ud800\n", "u.csv is not UTF-8 text"),
        ("u.jsonl", '{"id": "u1"}\n[]\n', "u.jsonl:2: not a JSON object; each line is one user"),
        ("u.jsonl", "{", "u.jsonl:1: not a JSON object"),
        ("u.txt", "", "is neither a .csv nor a .jsonl file"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(name: str, text: str, said: str, tmp_path: Path) -> None:
    """What is wrong with a file is said with the line it is on."""
    file = tmp_path / name
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidRequest) as error:
        list(rows(file, USERS))
    assert said in str(error.value)


def test_loading_needs_the_database_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without either the command says what is missing."""
    monkeypatch.chdir(tmp_path)  # where no service keeps its data
    assert commands.run(["users", "load", "users.csv"]) == 1
    assert "set HEADGATE_DATABASE_URL" in capsys.readouterr().err
    monkeypatch.setenv("HEADGATE_DATABASE_URL", "postgresql://somewhere")
    assert commands.run(["users", "load", "missing.csv"]) == 1
    assert "missing.csv cannot be read: No such file" in capsys.readouterr().err
