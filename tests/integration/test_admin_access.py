"""Who may do what through the admin API: every endpoint, every role, and every kind of bad token."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from fastapi.routing import APIRoute
from starlette.routing import Route
from tests.architecture.source import ROOT
from tests.support.admin import BOOTSTRAP, problem_of, with_admin

from headgate.controlplane.access import Role
from headgate.edge.admin.access import OPEN, ROLES
from headgate.edge.admin.sessions import MARK
from headgate.edge.dashboard.files import dashboard_routes

_PAGE = (ROOT / "docs/reference/admin-api.md").read_text(encoding="utf-8")
DOCUMENTED = dict(re.findall(r"^\| `([A-Z]+ /[^`]+)` \| `?(\w+)`? \| .+ \|$", _PAGE, re.MULTILINE))
"""Endpoints and their roles as operators read them: the table of the source is what is tested here."""
_BODIES: list[object] = [None, {}, {"rules": []}, {"name": "made", "per": "user", "limits": "1/hour"}, {"id": "made"}]

if TYPE_CHECKING:
    from fastapi import FastAPI
    from tests.support.admin import Admin


def _endpoints(app: FastAPI) -> list[str]:
    """All endpoints, as method and path. Beside them there are only the dashboard's files, which are only read."""
    files = [route for route in app.routes if not isinstance(route, APIRoute)]
    assert files == dashboard_routes()
    assert all(isinstance(route, Route) and route.methods == {"GET", "HEAD"} for route in files)
    return [
        f"{method} {route.path_format}"
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    ]


def _target(endpoint: str) -> tuple[str, str]:
    method, path = endpoint.split(" ")
    return method, re.sub(r"\{number\}", "1", re.sub(r"\{(id|name|rule)\}", "unknown", path))


def _marked(path: str) -> dict[str, str]:
    """The header that pages of the dashboard send, for the calls that only they make."""
    return {MARK: "1"} if path.startswith("/ui/") else {}


def test_every_endpoint_is_in_the_table_of_roles(database_url: str) -> None:
    """The application offers exactly the endpoints of the table."""

    async def test(admin: Admin) -> None:
        assert sorted(_endpoints(admin.app)) == sorted([*ROLES, *OPEN])

    with_admin(database_url, test)


def test_a_viewer_changes_nothing(database_url: str) -> None:
    """Whatever a viewer calls, with whatever body, no change is recorded."""

    async def test(admin: Admin) -> None:
        token = await admin.token(Role.VIEWER)
        before = (await admin.ask("GET", "/v1/changes")).json()
        for endpoint in _endpoints(admin.app):
            method, path = _target(endpoint)
            for body in _BODIES:
                await admin.ask(method, path, body, token=token, **_marked(path))
        assert (await admin.ask("GET", "/v1/changes")).json() == before

    with_admin(database_url, test)


def test_every_role_may_do_what_the_table_says_and_no_more(database_url: str) -> None:
    """A role that is not sufficient gets 403 with the required role; a sufficient one gets another answer."""

    async def test(admin: Admin) -> None:
        tokens = {role: await admin.token(role) for role in Role}
        for endpoint in _endpoints(admin.app):
            method, path = _target(endpoint)
            for role, token in tokens.items():
                answer = await admin.ask(method, path, token=token, **_marked(path))
                needed = None if DOCUMENTED[endpoint] == "none" else Role(DOCUMENTED[endpoint])
                assert answer.status_code < 500, (endpoint, answer.text)
                if needed is None or role.covers(needed):
                    assert answer.status_code not in {401, 403}, endpoint
                else:
                    assert f"role {needed}" in problem_of(answer, 403)["message"], endpoint

    with_admin(database_url, test)


def test_a_valid_token_is_required(database_url: str) -> None:
    """Missing, unknown, expired, revoked and malformed tokens get 401 everywhere, with what to send."""

    async def test(admin: Admin) -> None:
        expired, revoked = await admin.token(Role.ADMIN, name="old"), await admin.token(Role.ADMIN, name="bad")
        await admin.execute("UPDATE tokens SET expires_at = now() - interval '1 second' WHERE name = 'old'")
        (ended,) = [each for each in await admin.parts.access.list() if each.name == "bad"]
        await admin.parts.access.revoke(ended.id, "test")
        before = await admin.value("SELECT count(*) FROM changes")
        headers: list[list[tuple[str, str]]] = [
            [],
            [("authorization", f"Bearer {expired}")],
            [("authorization", f"Bearer {revoked}")],
            [("authorization", "Bearer hgt_000000000000000000000000000000000000000")],
            [("authorization", "Bearer")],
            [("authorization", "Bearer ")],
            [("authorization", BOOTSTRAP)],
            [("authorization", f"Basic {BOOTSTRAP}")],
            [("authorization", f"Bearer {BOOTSTRAP} {BOOTSTRAP}")],
            [("authorization", f"Bearer {BOOTSTRAP}\xe9")],
            [("authorization", f"Bearer {'x' * 5_000}")],
            [("authorization", f"Bearer {BOOTSTRAP}"), ("authorization", f"Bearer {BOOTSTRAP}")],
            [("x-api-key", BOOTSTRAP)],
        ]
        for endpoint in ROLES:
            method, path = _target(endpoint)
            for sent in headers:
                answer = await admin.client.request(
                    method, path, headers=[(name.encode(), value.encode("latin-1")) for name, value in sent]
                )
                problem_of(answer, 401)
                assert answer.headers["www-authenticate"].startswith('Bearer realm="headgate"')
                assert BOOTSTRAP not in answer.text
        assert await admin.value("SELECT count(*) FROM changes") == before

    with_admin(database_url, test)


def test_what_needs_no_token_needs_none(database_url: str) -> None:
    """Health, the description, the dashboard's files and its signing in need no token, and nothing else does."""

    async def test(admin: Admin) -> None:
        for endpoint in OPEN:
            method, path = endpoint.split(" ")
            body = {"token": BOOTSTRAP} if endpoint == "POST /ui/session" else None
            answer = await admin.ask(method, path, body, token=None, **_marked(path))
            assert answer.status_code == (204 if method == "DELETE" else 200), endpoint
        admin.client.cookies.clear()
        for path in ("/", "/ui"):
            answer = await admin.ask("GET", path, token=None)
            assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")
        assert (await admin.ask("GET", "/ui/", token=None)).status_code == 200
        for path in ("/docs", "/redoc", "/v1"):
            problem_of(await admin.ask("GET", path, token=None), 404)
        for path in ("/v1/", "/v1/nothing"):  # unknown paths under /v1 need a token too
            problem_of(await admin.ask("GET", path, token=None), 401)
            problem_of(await admin.ask("GET", path), 404)

    with_admin(database_url, test)


def test_a_revoked_token_ends_within_a_second(database_url: str) -> None:
    """A token that was valid a moment ago is refused."""

    async def test(admin: Admin) -> None:
        secret = await admin.token(Role.VIEWER, name="ci")
        assert (await admin.ask("GET", "/v1/me", token=secret)).json() == {"name": "token:ci", "role": "viewer"}
        (token,) = (await admin.good("GET", "/v1/tokens"))["items"]
        await admin.good("DELETE", f"/v1/tokens/{token['id']}")
        async with asyncio.timeout(1.5):
            while (await admin.ask("GET", "/v1/me", token=secret)).status_code != 401:
                pass  # each request waits for the database, or not at all

    with_admin(database_url, test)


def test_changes_carry_the_name_of_the_token(database_url: str) -> None:
    """Change records name the token that made the change."""

    async def test(admin: Admin) -> None:
        operator = await admin.token(Role.OPERATOR, name="ops")
        assert (await admin.ask("POST", "/v1/users", {"id": "u1"}, token=operator)).status_code == 201
        (change,) = (await admin.good("GET", "/v1/changes?kind=user&name=u1"))["items"]
        assert (change["who"], change["verb"]) == ("token:ops", "created")

    with_admin(database_url, test)


def test_the_scheme_may_have_any_case(database_url: str) -> None:
    """RFC 9110 compares schemes without case."""

    async def test(admin: Admin) -> None:
        for scheme in ("bearer", "BEARER", "Bearer"):
            answer = await admin.ask("GET", "/v1/me", token=None, authorization=f"{scheme} {BOOTSTRAP}")
            assert answer.json()["role"] == "admin"

    with_admin(database_url, test)
