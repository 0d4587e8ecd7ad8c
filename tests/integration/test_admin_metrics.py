"""`/metrics` of the admin API."""

from __future__ import annotations

import asyncio

from tests.support.admin import opened, problem_of


def test_metrics_are_those_of_a_service(database_url: str) -> None:
    """Where there is no service, as behind a command that goes to the database itself, there are no metrics."""

    async def run() -> None:
        async with opened(database_url, metrics=None) as admin:
            assert "headgate serve" in problem_of(await admin.ask("GET", "/metrics"), 404)["detail"]

    asyncio.run(run())
