"""Tokens of this API, and who it takes you for."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request

from headgate.controlplane.access import Caller, TokenRecord
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.credentials import CallerView, NewToken, NewTokenView, TokenPage
from headgate.edge.admin.pages import Page
from headgate.edge.admin.paths import Name

router = APIRouter(route_class=Gate, tags=["tokens"])


@router.get("/v1/me", response_model=CallerView)
async def get_caller(request: Request) -> Caller:
    """Who the API takes you for, and your role."""
    caller: Caller = request.state.caller
    return caller


@router.get("/v1/tokens", response_model=TokenPage)
async def list_tokens(parts: Parts) -> Page[TokenRecord]:
    """All tokens, the newest first. There is one page."""
    return Page(await parts.access.list(), None)


@router.post("/v1/tokens", response_model=NewTokenView, status_code=HTTPStatus.CREATED)
async def create_token(parts: Parts, who: Who, body: NewToken) -> dict[str, Any]:
    """A new token, and its secret, which nobody can ever see again."""
    record, secret = await parts.access.create(body.given(), who)
    return {"token": record, "secret": secret}


@router.delete("/v1/tokens/{id:part}", status_code=HTTPStatus.NO_CONTENT)
async def revoke_token(parts: Parts, who: Who, id: Name) -> None:  # noqa: A002 (tokens have ids)
    """End a token; within a second it lets nobody in."""
    await parts.access.revoke(id, who)
