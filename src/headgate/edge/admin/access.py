"""Which role each endpoint needs, in one table, and the token that a call carries."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.controlplane.access import Role
from headgate.edge.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_VIEWER: Final = (
    *("GET /v1/me", "GET /v1/rules", "GET /v1/rules/{name}", "GET /v1/rules/{name}/history"),
    *("GET /v1/ruleset", "GET /v1/ruleset/schema", "POST /v1/ruleset/validate", "POST /v1/ruleset/plan"),
    *(
        "POST /v1/ruleset/draft",
        "POST /v1/simulate",
        "POST /v1/ruleset/import",
        "GET /v1/snapshot",
        "GET /v1/snapshots",
        "GET /v1/snapshots/{number}",
    ),
    *(
        "GET /v1/tiers",
        "GET /v1/tiers/{name}",
        "GET /v1/tiers/{name}/use",
        "GET /v1/users",
        "GET /v1/users/{id}",
        "GET /v1/users/{id}/quota",
    ),
    *("GET /v1/keys", "GET /v1/keys/{id}", "GET /v1/blocks", "GET /v1/blocks/{id}", "GET /v1/changes"),
    *("GET /v1/events", "GET /v1/events/{id}", "GET /v1/violators", "GET /v1/near-limits", "GET /v1/utilisation"),
    *("GET /v1/metrics", "GET /v1/endpoints", "GET /v1/users/{id}/story", "POST /v1/explain"),
    *("GET /v1/hot", "GET /v1/overview", "GET /v1/processes", "GET /v1/jobs"),
    *("GET /v1/usage", "GET /v1/usage/export", "GET /v1/usage/reconciliation", "GET /v1/usage/keys"),
)
_OPERATOR: Final = (
    *("POST /v1/rules/{name}/enable", "POST /v1/rules/{name}/disable"),
    *("POST /v1/users", "PUT /v1/users/{id}", "DELETE /v1/users/{id}", "POST /v1/users/{id}/quota/reset"),
    *("PUT /v1/users/{id}/overrides/{rule}", "DELETE /v1/users/{id}/overrides/{rule}"),
    *("POST /v1/keys", "PUT /v1/keys/{id}", "POST /v1/keys/{id}/revoke", "POST /v1/keys/{id}/rotate"),
    *("PUT /v1/keys/{id}/limits/{rule}", "DELETE /v1/keys/{id}/limits/{rule}"),
    *("POST /v1/blocks", "PUT /v1/blocks/{id}", "DELETE /v1/blocks/{id}"),
)
_ADMIN: Final = (
    *("POST /v1/rules", "PUT /v1/rules/{name}", "DELETE /v1/rules/{name}", "POST /v1/rules/publish"),
    *("POST /v1/rules/{name}/publish", "POST /v1/rules/{name}/discard", "POST /v1/rules/{name}/rollback"),
    "POST /v1/rules/{name}/rename",
    *("POST /v1/ruleset/apply", "POST /v1/ruleset/sync"),
    *("POST /v1/snapshot/publish", "POST /v1/snapshots/{number}/rollback"),
    *("POST /v1/tiers", "PUT /v1/tiers/{name}", "DELETE /v1/tiers/{name}"),
    *("GET /v1/tokens", "POST /v1/tokens", "DELETE /v1/tokens/{id}"),
)

ROLES: Final[Mapping[str, Role]] = {
    **dict.fromkeys(_VIEWER, Role.VIEWER),
    **dict.fromkeys(_OPERATOR, Role.OPERATOR),
    **dict.fromkeys(_ADMIN, Role.ADMIN),
}
"""The role that each endpoint needs, by method and path."""

OPEN: Final = frozenset(
    {
        "GET /livez",
        "GET /readyz",
        "GET /metrics",
        "GET /openapi.json",
        "GET /ui/session",
        "POST /ui/session",
        "DELETE /ui/session",
    }
)
"""Endpoints that need no token."""


_ON_ALL_PROCESSES: Final = ("/v1/rules", "/v1/snapshot", "/v1/tiers", "/v1/blocks")
"""Prefixes of paths; they cover /v1/ruleset and /v1/snapshots too."""


def reaches_processes(endpoint: str) -> bool:
    """Whether an endpoint changes what every process holds in memory: rules, tiers or blocks."""
    _, path = endpoint.split()
    return changes_something(endpoint) and path.startswith(_ON_ALL_PROCESSES)


def changes_something(endpoint: str) -> bool:
    """Whether an endpoint changes anything. A viewer may only read."""
    return not endpoint.startswith("GET ") and ROLES[endpoint] is not Role.VIEWER


_MAX_TOKEN: Final = 1_024


def token_of(given: Sequence[bytes]) -> str:
    """The bearer token in the `Authorization` headers of a call; `HttpProblem` if there is none."""
    if not given:
        sentence = "send a token: Authorization: Bearer hgt_…"
        raise unauthorized(sentence)
    scheme, _, token = given[0].decode("latin-1").strip().partition(" ")
    token = token.strip(" ")
    good = token.isascii() and token.isprintable() and " " not in token and 0 < len(token) <= _MAX_TOKEN
    if len(given) > 1 or scheme.lower() != "bearer" or not good:
        sentence = "the header is malformed; send one: Authorization: Bearer hgt_…"
        raise unauthorized(sentence, ', error="invalid_request"')
    return token


def unauthorized(sentence: str, more: str = "") -> HttpProblem:
    """The answer to a call whose token is missing or invalid."""
    return HttpProblem(HTTPStatus.UNAUTHORIZED, sentence, ("www-authenticate", f'Bearer realm="headgate"{more}'))
