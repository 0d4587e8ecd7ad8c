"""How PostgreSQL carries statements out that are prepared once and used with any arguments."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate.adapters.postgres import Database
from headgate.adapters.postgres.connection import statements

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_A_RULE = sorted(
    name for name, text in statements().items() if "rule = (SELECT rule_id(" in text or "rule = rule_id(" in text
)


async def _plan(url: str, statement: str) -> Any:  # noqa: ANN401 (any JSON)
    """The plan for arguments that are not known yet, as PostgreSQL makes it once a statement was used a few times."""
    database = Database(url)
    try:
        async with database.use() as connection:
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            prepared = await connection.prepare(statements()[statement])
            await connection.execute("SELECT make_event_partition(now())")
            kinds = [kind.name for kind in prepared.get_parameters()]
            names = ", ".join("now()" if kind == "timestamptz" else "NULL" for kind in kinds)
            await connection.execute(f"PREPARE looked_at AS {statements()[statement]}")
            found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE looked_at({names})")
            return json.loads(found)
    finally:
        await database.close()


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 (any JSON)
    if isinstance(plan, dict):
        yield plan
    for each in plan.values() if isinstance(plan, dict) else plan if isinstance(plan, list) else ():
        yield from _nodes(each)


@pytest.mark.parametrize("statement", _OF_A_RULE)
def test_the_id_of_a_rule_is_looked_up_once(statement: str, database_url: str) -> None:
    """Not once for each row that is read, which would take a hundred times as long."""
    plan = asyncio.run(_plan(database_url, statement))
    filters = [node[name] for node in _nodes(plan) for name in ("Filter", "Index Cond", "Join Filter") if name in node]
    assert filters
    assert [each for each in filters if "rule_id(" in each] == []


def test_counts_of_one_rule_are_found_by_index(database_url: str) -> None:
    """By granularity, time and rule: other rules' rows are not read."""
    plan = asyncio.run(_plan(database_url, "analytics.totals"))
    (conditions,) = [node["Index Cond"] for node in _nodes(plan) if node.get("Relation Name", "").startswith("metrics")]
    assert "rule = " in conditions
    assert "at = " in conditions
