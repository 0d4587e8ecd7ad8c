"""Changes written straight into the tables, one transaction each, as the services of the control plane write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.controlplane.documents import make

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.adapters.postgres import Database

_CHANGE = "INSERT INTO changes (who, kind, name, verb) VALUES ('test', $1, $2, 'changed') RETURNING id"
_SNAPSHOT = "INSERT INTO snapshots (number, who, rules, digest, body) VALUES ($1, 'test', 0, $2, $3)"
_IN_TURN = "SELECT pg_advisory_xact_lock(x'68656164'::int)"  # see Database.change


async def change(database: Database, kind: str, name: str, *sql: str) -> int:
    """Write the record of a change, with whatever else belongs to it; returns its number."""
    async with database.use() as connection, connection.transaction():
        await connection.execute(_IN_TURN)
        for statement in sql:
            await connection.execute(statement)
        number: int = await connection.fetchval(_CHANGE, kind, name)
        return number


async def publish(database: Database, rule_set: Mapping[str, Any]) -> int:
    """Publish a rule set; returns its number."""
    async with database.use() as connection, connection.transaction():
        await connection.execute(_IN_TURN)
        number: int = await connection.fetchval(_CHANGE, "rule", "r")
        document = make("rules", number, rule_set)
        await connection.execute(_SNAPSHOT, number, document.digest, document.body)
        return number


def limit(amount: int) -> dict[str, Any]:
    """A rule set of one rule."""
    return {"rules": [{"name": "r", "limits": f"{amount}/hour"}]}
