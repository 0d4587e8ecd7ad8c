"""The schema of a database as SQL, read off its catalogue; ``make schema`` writes schema.sql with it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import Database, migrate

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

SCHEMA = Path(__file__).parents[2] / "src/headgate/adapters/postgres/sql/schema.sql"
_HEADER = "-- The sum of all migrations, for reading. Written by `make schema`; a test holds it to the migrations."
# Everything but the table that the migrations themselves are recorded in.
_TABLES = """
SELECT oid, relname, relkind, pg_get_partkeydef(oid) AS partitions, array_to_string(reloptions, ', ') AS options,
       (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = pg_class.oid) AS parent,
       pg_get_expr(relpartbound, oid) AS bound
FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND relname <> 'migrations'
ORDER BY relname"""
_COLUMNS = """
SELECT quote_ident(attname) AS name, format_type(atttypid, atttypmod) AS type, attnotnull, attidentity, attgenerated,
       pg_get_expr(adbin, adrelid) AS value
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_CONSTRAINTS = """
SELECT conname, contype, pg_get_constraintdef(oid) AS text FROM pg_constraint
WHERE conrelid = $1 AND contype IN ('p', 'u', 'c', 'f', 'x') ORDER BY position(contype IN 'pucxf'), conname"""
_INDEXES = """
SELECT pg_get_indexdef(indexrelid) AS text FROM pg_index
WHERE indrelid = $1
    AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
ORDER BY indexrelid::regclass::text"""
_VIEWS = """
SELECT format('CREATE VIEW %I AS', relname) || E'\n' || pg_get_viewdef(oid) AS text FROM pg_class
WHERE relkind = 'v' AND relnamespace = current_schema()::regnamespace ORDER BY relname"""
_FUNCTIONS = """
SELECT pg_get_functiondef(oid) AS text FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace AND prokind <> 'a' ORDER BY proname"""
_AGGREGATES = """
SELECT format('CREATE AGGREGATE %I(%s) (SFUNC = %s, STYPE = %s, INITCOND = %L, PARALLEL = %s)', proname,
              pg_get_function_arguments(pg_proc.oid), aggtransfn::regproc, format_type(aggtranstype, NULL), agginitval,
              CASE proparallel WHEN 's' THEN 'SAFE' ELSE 'UNSAFE' END) AS text
FROM pg_proc JOIN pg_aggregate ON aggfnoid = pg_proc.oid
WHERE pronamespace = current_schema()::regnamespace ORDER BY proname"""


async def schema_text(connection: PoolConnectionProxy[asyncpg.Record]) -> str:
    """All tables, indexes, views and functions, in an order in which they can be made again."""
    parts, references = [], []
    for table in await connection.fetch(_TABLES):
        options = f" WITH ({table['options']})" if table["options"] else ""
        if table["bound"]:  # its columns, constraints and indexes are those of the whole
            parts.append(f"CREATE TABLE {table['relname']} PARTITION OF {table['parent']} {table['bound']}{options};")
            continue
        lines = [_column(column) for column in await connection.fetch(_COLUMNS, table["oid"])]
        for constraint in await connection.fetch(_CONSTRAINTS, table["oid"]):
            text = f"CONSTRAINT {constraint['conname']} {constraint['text']}"
            if constraint["contype"] == b"f":
                references.append(f"ALTER TABLE {table['relname']} ADD {text};")
            else:
                lines.append(text)
        partitions = f" PARTITION BY {table['partitions']}" if table["partitions"] else ""
        body = "".join(f"\n    {line}{',' if line is not lines[-1] else ''}" for line in lines)
        indexes = [f"{row['text']};" for row in await connection.fetch(_INDEXES, table["oid"])]
        parts.append("\n".join([f"CREATE TABLE {table['relname']} ({body}\n){partitions}{options};", *indexes]))
    views = [row["text"] for row in await connection.fetch(_VIEWS)]
    functions = [
        f"{row['text'].strip()};" for kind in (_FUNCTIONS, _AGGREGATES) for row in await connection.fetch(kind)
    ]
    text = "\n\n".join([_HEADER, *parts, "\n".join(references), *views, *functions])
    return text.replace(" public.", " ").replace(" ONLY ", " ") + "\n"


def _column(column: asyncpg.Record) -> str:
    words = [column["name"], column["type"]]
    if column["attidentity"] == b"a":
        words.append("GENERATED ALWAYS AS IDENTITY")
    elif column["attgenerated"] == b"s":
        words.append(f"GENERATED ALWAYS AS ({column['value']}) STORED")
    elif column["value"] is not None:
        words.append(f"DEFAULT {column['value']}")
    if column["attnotnull"]:
        words.append("NOT NULL")
    return " ".join(words)


async def schema_of(database: Database) -> str:
    """The schema of a database."""
    async with database.use() as connection:
        return await schema_text(connection)


async def _write() -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        opened = open_database(f"embedded://{folder}/postgres")
        await migrate(opened.database)
        SCHEMA.write_text(await schema_of(opened.database), encoding="utf-8")
        await opened.close()


if __name__ == "__main__":
    asyncio.run(_write())
