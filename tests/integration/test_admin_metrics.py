"""`/metrics` of the admin API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.admin_setup import problem_of, with_admin

if TYPE_CHECKING:
    from tests.integration.admin_setup import Admin


def test_metrics_are_those_of_a_service(database_url: str) -> None:
    """Where there is no service, as behind a command that goes to the database itself, there are no metrics."""

    async def test(admin: Admin) -> None:
        del admin.app.state.metrics
        assert "headgate serve" in problem_of(await admin.ask("GET", "/metrics"), 404)["detail"]

    with_admin(database_url, test)
