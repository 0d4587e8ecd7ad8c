"""A role that owns nothing can decide with the grants of the documentation, and what it lacks is named."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from tests.support.doctor import IN_MEMORY, found
from tests.support.spool import batch_of, event

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database, migrate
from headgate.adapters.postgres.event_sink import PostgresEvents
from headgate.archive.retention import Retention
from headgate.cli.commands import run
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/use-postgres.md"


class Granted(NamedTuple):
    """A database whose tables are another role's."""

    name: str
    owner: str
    role: str
    """The role that owns nothing."""
    url: str
    """With that role."""
    grants: list[str]
    """The statements of the page: on the schema, on all tables, on those to come."""

    @property
    def as_owner(self) -> str:
        """The address of the role that owns everything."""
        return self.url.replace(f"{self.role}@", f"{self.owner}@")

    def execute(self, postgres: Postgres, *statements: str) -> None:
        """As the owner."""
        postgres.execute(self.name, "; ".join([f"SET ROLE {self.owner}", *statements]))


@pytest.fixture
def granted(postgres: Postgres) -> Granted:
    """Without any grant or table yet."""
    url = postgres.new_database(empty=True)
    name = url.partition("@/")[2].partition("?")[0]
    owner, role = f"owner_{name}", f"owner_{name}_decisions"
    postgres.execute(name, f"CREATE ROLE {owner} LOGIN; CREATE ROLE {role} LOGIN")
    postgres.execute(name, f"ALTER DATABASE {name} OWNER TO {owner}; ALTER SCHEMA public OWNER TO {owner}")
    block = next(
        text for text in re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL) if "USAGE" in text
    )
    made, *grants = block.replace("headgate", owner).strip().splitlines()
    assert made.startswith(f"CREATE ROLE {role} LOGIN"), "the page makes the role, which is here already"
    return Granted(name, owner, role, url.replace("postgres@", f"{role}@"), grants)


def _migrate(granted: Granted) -> None:
    """As the service does that administers: tables, and the partitions of coming months."""

    async def prepare() -> None:
        database = Database(granted.as_owner)
        await migrate(database)
        await Retention(database, wall_clock).make_ahead()
        await database.close()

    asyncio.run(prepare())


def _forbidden(granted: Granted) -> str | None:
    """What `headgate doctor` says of the role."""
    return found(**IN_MEMORY, database_url=granted.url).get("database-rights")


async def _stores_an_event(url: str) -> SinkResult:
    database = Database(url)
    try:
        return await PostgresEvents(database, wall_clock).store(batch_of(event(1)._replace(at=wall_clock())))
    finally:
        await database.close()


def test_the_grants_of_the_page_hold_for_tables_to_come(postgres: Postgres, granted: Granted) -> None:
    """With default privileges a migration leaves nothing to do: the role reads and writes what it made."""
    assert len(granted.grants) == 3
    granted.execute(postgres, *granted.grants)
    _migrate(granted)
    assert _forbidden(granted) is None
    assert run(["db", "status", "--url", granted.url]) == 0
    assert asyncio.run(_stores_an_event(granted.url)) == SinkResult(1)


def test_a_table_without_grants_is_named(
    postgres: Postgres, granted: Granted, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a migration that made one, where there are no default privileges."""
    _migrate(granted)
    granted.execute(postgres, *granted.grants[:2], f"REVOKE ALL ON metrics FROM {granted.role}")
    assert _forbidden(granted) == "no full access to metrics"
    assert run(["db", "status", "--url", granted.url]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.endswith(
        "The schema is up to date. The role may not read and write metrics: grant it SELECT, INSERT, UPDATE and DELETE "
        "there, as their owner."
    )
    assert run(["db", "status", "--json", "--url", granted.url]) == 0
    assert json.loads(capsys.readouterr().out)["forbidden"] == ["metrics"]


def test_a_role_without_any_grant_is_told_so(granted: Granted, capsys: pytest.CaptureFixture[str]) -> None:
    """It may not even see which migrations were applied, which is no other version of the schema."""
    _migrate(granted)
    codes = found(**IN_MEMORY, database_url=granted.url)
    assert "schema-foreign" not in codes
    assert ", migrations, " in codes["database-rights"]
    assert run(["db", "status", "--url", granted.url]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("headgate: the role may not read and write api_keys, ")
    assert shown.endswith("grant it SELECT, INSERT, UPDATE and DELETE there, as their owner\n")
