"""What every endpoint under /v1 does first: authenticate, check the role, read the body, and look for a repeat."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.types import Scope

from headgate.controlplane.access import Caller, Role
from headgate.edge.admin import applied, idempotency
from headgate.edge.admin.access import ROLES, changes_something, reaches_processes, unauthorized
from headgate.edge.admin.body import max_bytes, parse_body, read_body
from headgate.edge.admin.parts import AdminParts
from headgate.edge.admin.sessions import credential
from headgate.edge.http.application import client_address
from headgate.edge.problems import HttpProblem
from headgate.edge.refused_sign_ins import WRONG_TOKEN
from headgate.errors import InvalidFields, Problem, short_repr

_NO_BODY: Final = (b"", b"{}")


def parts_of(request: Request) -> AdminParts:
    """The services behind the application."""
    parts: AdminParts = request.app.state.parts
    return parts


def who_of(request: Request) -> str:
    """The caller, as change records name it."""
    caller: Caller = request.state.caller
    return caller.name


Parts = Annotated[AdminParts, Depends(parts_of)]
Who = Annotated[str, Depends(who_of)]


class AdminRoute(APIRoute):
    """A route that needs a token with a sufficient role."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, behind these checks."""
        answer = super().get_route_handler()
        (method,) = self.methods or ("GET",)
        endpoint = f"{method} {self.path_format}"
        needed = ROLES[endpoint]
        queries = _queries(self.dependant)
        if spreads := reaches_processes(endpoint):
            queries |= {applied.WAIT}

        async def handle(request: Request) -> Response:
            request.state.caller = await _admitted(request, parts_of(request), needed)
            _refuse_other_queries(request, queries)
            if not spreads:
                return await handle_body(request)
            seconds = applied.seconds_to_wait(request)
            response = await handle_body(request)
            await applied.add_applied(response, parts_of(request).processes, seconds)
            return response

        async def handle_body(request: Request) -> Response:
            if method not in {"POST", "PUT"}:
                return await answer(request)
            body = await read_body(request, max_bytes(self.path_format))
            if self.body_field is None:
                if body.strip() not in _NO_BODY:
                    raise HttpProblem(HTTPStatus.BAD_REQUEST, f"{endpoint} takes no body")
                data = None
            else:
                data = await parse_body(request, body) if body else None
            once = changes_something(endpoint) and method == "POST"
            return await _answered(_Received(request, body, data), answer, once=once)

        return handle


class _Received(Request):
    """A request whose body has been read and parsed."""

    def __init__(self, request: Request, body: bytes, data: object) -> None:
        super().__init__(request.scope, request.receive)
        self._received = body, data

    async def body(self) -> bytes:
        return self._received[0]

    async def json(self) -> object:
        return self._received[1]


async def _answered(request: _Received, answer: Callable[[Request], Awaitable[Response]], *, once: bool) -> Response:
    keys = request.headers.getlist("idempotency-key") if once else []
    if not keys:
        return await answer(request)
    caller: Caller = request.state.caller
    key = idempotency.read_key(keys)
    content = request.method, request.scope["path"], request.url.query, await request.body()
    digest = await asyncio.to_thread(idempotency.digest_of, *content)  # rule sets are large
    attempt = idempotency.Attempt(caller.token_id or "", key, digest)
    return await idempotency.once(parts_of(request).database, attempt, lambda: answer(request))


async def _admitted(request: Request, parts: AdminParts, needed: Role) -> Caller:
    """The caller, if the token is valid and its role suffices."""
    caller = await caller_of(parts, credential(request.scope, lambda: parts.sessions), request.scope)
    if not caller.role.covers(needed):
        sentence = f"this needs the role {needed}; the token has the role {caller.role}"
        raise HttpProblem(HTTPStatus.FORBIDDEN, sentence)
    return caller


async def caller_of(parts: AdminParts, token: str, scope: Scope) -> Caller:
    """Who presents this token; `HttpProblem` if it is not good, which is counted and logged."""
    caller = await parts.access.authenticate(token)
    if caller is None:
        parts.refused.count(WRONG_TOKEN, client_address(scope.get("client")))
        sentence = "the token is unknown, expired or revoked"
        raise unauthorized(sentence, ', error="invalid_token"')
    return caller


def _refuse_other_queries(request: Request, known: frozenset[str]) -> None:
    """Otherwise a misspelt filter would be ignored."""
    problems = []
    given = [name for name, _ in request.query_params.multi_items()]
    for name in dict.fromkeys(given):
        if name not in known:
            hint = f"known are {', '.join(sorted(known))}" if known else "this endpoint takes none"
            problems.append(Problem((name,), f"unknown query parameter; {hint}"))
        elif given.count(name) > 1:
            problems.append(Problem((name,), f"{short_repr(name)} appears {given.count(name)} times; send it once"))
    if problems:
        raise InvalidFields(problems)


def _queries(dependant: Dependant) -> frozenset[str]:
    """The query parameters of an endpoint and of its dependencies."""
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*map(_queries, dependant.dependencies))
