"""The admin API as an ASGI application."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI

from headgate.edge.admin.endpoints import (
    activity,
    analytics,
    blocks,
    credentials,
    decisions,
    drafts,
    hot,
    overview,
    processes,
    rule_sets,
    rules,
    sessions,
    tiers,
    usage,
    users,
)
from headgate.edge.admin.middleware import Frame, Guard
from headgate.edge.admin.openapi import describe
from headgate.edge.admin.problems import handle_problems
from headgate.edge.dashboard.files import dashboard_routes

if TYPE_CHECKING:
    from headgate.edge.admin.parts import AdminParts

_ROUTERS: Final = (
    rules.router,
    rule_sets.router,
    drafts.router,
    rule_sets.snapshots_router,
    tiers.router,
    users.router,
    credentials.api_keys_router,
    blocks.router,
    decisions.router,
    activity.router,
    analytics.router,
    usage.router,
    credentials.tokens_router,
    hot.router,
    overview.router,
    processes.router,
    processes.health_router,
    sessions.router,
)


def admin_app(parts: AdminParts) -> FastAPI:
    """The application in front of these services."""
    app = FastAPI(
        title="Headgate admin API",
        summary="Rules, tiers, users, API keys, blocks, and what became of requests",
        version=version("headgate"),
        routes=[*(route for router in _ROUTERS for route in router.routes), *dashboard_routes()],
        openapi_url=None,  # see `processes`
        # The pages that FastAPI would offer load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.add_middleware(Guard)
    app.add_middleware(Frame)  # around Guard
    handle_problems(app)
    described: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not described:
            described.update(describe(app))
        return described

    app.openapi = openapi  # type: ignore[method-assign] # the way FastAPI documents
    return app
