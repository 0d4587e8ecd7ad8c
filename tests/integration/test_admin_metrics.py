"""`/metrics` of the admin API."""

from __future__ import annotations

import asyncio

from tests.support.admin import opened, problem_of


def test_metrics_are_those_of_a_service(database_url: str) -> None:
    """A process without a decision service, as a command that uses the database itself, has no metrics."""

    async def run() -> None:
        async with opened(database_url, metrics=None) as admin:
            assert "headgate serve" in problem_of(await admin.ask("GET", "/metrics"), 404)["detail"]

    asyncio.run(run())
