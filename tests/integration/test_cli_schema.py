"""A command finds a database without a schema: it says so, and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import pytest

from headgate.cli.commands import run

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

RULES: Final = str(Path(__file__).parents[2] / "examples" / "rules.yaml")
TIME: Final = ("--since", "2026-01-01", "--until", "2026-01-02")
READS: Final = [
    ("tiers", "list"),
    ("tiers", "show", "pro"),
    ("users", "list"),
    ("users", "show", "u1"),
    ("users", "story", "u1"),
    ("keys", "list"),
    ("keys", "show", "k1"),
    ("blocks", "list"),
    ("tokens", "list"),
    ("rules", "plan", RULES),
    ("rules", "dump"),
    ("rules", "history"),
    ("explain", "--user", "u1"),
    ("quota", "u1"),
    ("processes",),
    ("hot",),
    ("changes",),
    ("events",),
    ("events", "show", "e1"),
    ("violators",),
    ("near-limits",),
    ("utilisation",),
    ("endpoints",),
    ("metrics",),
    ("usage",),
    ("usage", "export"),
    ("usage", "reconcile"),
    ("simulate", "--rules", RULES, "--from", "events", "--since", "1h"),
]
WRITES: Final = [
    ("tiers", "set", "pro"),
    ("tiers", "delete", "pro"),
    ("users", "set", "u1"),
    ("users", "delete", "u1"),
    ("users", "override", "u1", "search", "5/minute"),
    ("keys", "create", "--user", "u1"),
    ("keys", "rotate", "k1"),
    ("keys", "revoke", "k1"),
    ("blocks", "add", "--user", "u1"),
    ("blocks", "remove", "b1"),
    ("tokens", "create", "ci"),
    ("tokens", "revoke", "t1"),
    ("rules", "apply", RULES),
    ("rules", "sync", RULES),
    ("rules", "rollback", "--snapshot", "1"),
    ("rules", "enable", "search"),
    ("rules", "disable", "search"),
    ("quota", "u1", "--reset"),
]


@pytest.fixture(scope="module")
def empty(postgres: Postgres) -> str:
    """The address of a database without a table."""
    return postgres.new_database(empty=True)


@pytest.fixture(autouse=True)
def _environment(empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_DATABASE_URL", empty)
    monkeypatch.setenv("HEADGATE_DATA_DIR", str(tmp_path))


def tables(url: str) -> int:
    """How many tables a database has of its own."""

    async def count() -> int:
        connection = await asyncpg.connect(url)
        try:
            return int(await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"))
        finally:
            await connection.close()

    return asyncio.run(count())


@pytest.mark.parametrize("words", [*READS, *WRITES], ids=" ".join)
def test_a_command_never_migrates(words: tuple[str, ...], empty: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On an empty database a command names 'headgate db migrate', ends with exit code 1, and makes no table."""
    assert run(list(words)) == 1
    out, err = capsys.readouterr()
    assert "headgate db migrate" in err
    assert "Traceback" not in out + err
    assert tables(empty) == 0


@pytest.mark.parametrize("noun", ["users", "keys"])
def test_loading_never_migrates(noun: str, empty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loading users or keys from a file needs a schema, as every other change does."""
    file = tmp_path / f"{noun}.jsonl"
    file.write_text('{"id": "u1"}\n' if noun == "users" else '{"name": "k1"}\n')
    assert run([noun, "load", str(file)]) == 1
    assert "headgate db migrate" in capsys.readouterr().err
    assert tables(empty) == 0


def test_a_schema_that_is_behind_is_named(postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    """A schema that lacks the newest migrations is not used, and not brought up to date behind the operator's back."""
    url = postgres.new_database()

    async def take_back() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("DELETE FROM migrations WHERE number = (SELECT max(number) FROM migrations)")
        await connection.close()

    asyncio.run(take_back())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADGATE_DATABASE_URL", url)
        assert run(["tiers", "list"]) == 1
    assert "1 migration behind" in capsys.readouterr().err
