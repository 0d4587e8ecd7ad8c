"""The admin API as an ASGI application."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI

from headgate.edge.admin.description import describe
from headgate.edge.admin.endpoints import (
    activity,
    analytics,
    billing,
    blocks,
    deciding,
    health,
    keys,
    processes,
    rule_set,
    rules,
    snapshots,
    stories,
    tiers,
    tokens,
    users,
)
from headgate.edge.admin.frame import Frame
from headgate.edge.admin.guard import Guard
from headgate.edge.admin.problems import handle_problems

if TYPE_CHECKING:
    from headgate.edge.admin.parts import AdminParts

_ACCOUNTS: Final = (tiers, users, keys, blocks)
_WHAT_HAPPENED: Final = (activity, analytics, billing, stories)
_SUBJECTS: Final = (rules, rule_set, snapshots, *_ACCOUNTS, deciding, *_WHAT_HAPPENED, tokens, processes, health)


def admin_app(parts: AdminParts) -> FastAPI:
    """The application in front of these services."""
    app = FastAPI(
        title="Headgate admin API",
        summary="Rules, tiers, users, API keys, blocks, and what became of requests",
        version=version("headgate"),
        routes=[route for subject in _SUBJECTS for route in subject.router.routes],
        openapi_url=None,  # see `health`
        # The pages that FastAPI would offer load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.add_middleware(Guard)
    app.add_middleware(Frame)  # around the other
    handle_problems(app)
    described: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not described:
            described.update(describe(app))
        return described

    app.openapi = openapi  # type: ignore[method-assign] # the way FastAPI documents
    return app
