"""Requests that may be repeated: with an Idempotency-Key the second copy gets the first one's answer.

Stored answers contain no secrets. An answer with a secret is stored without it, and says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import Response

from headgate.edge.problems import HttpProblem
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from headgate.ports import Database

log = logging.getLogger("headgate")

_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")
_KEPT_HEADERS: Final = ("content-type", "etag", "location")
_IN_FLIGHT: Final = 0
_SECRET: Final = "secret"  # noqa: S105 (the name of a member)


class Attempt(NamedTuple):
    """One copy of a request."""

    token: str
    """The id of the caller's token; each token has keys of its own."""
    key: str
    digest: bytes
    """Identifies the request's content."""


def read_key(given: Sequence[str]) -> str:
    """The key of a request that has one."""
    if len(given) != 1 or not _KEY.fullmatch(given[0]):
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST, "Idempotency-Key must be one value of 1 to 255 printable ASCII characters"
        )
    return given[0]


def digest_of(method: str, path: str, query: str, body: bytes) -> bytes:
    """A digest of the request's content."""
    digest = hashlib.sha256(f"{method}\0{path}\0{query}\0".encode())
    digest.update(body)
    return digest.digest()


async def once(database: Database, attempt: Attempt, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Answer a request, or repeat the stored answer. Only success is stored: a failed request can be retried."""
    if await database.row("idempotency.claim", *attempt, _IN_FLIGHT) is None:
        kept = await database.row("idempotency.get", attempt.token, attempt.key)
        if kept is not None:
            return _again(kept, attempt)
        raise _in_progress()  # the first copy has just failed
    try:
        response = await answer()
    except Exception as error:  # not if cancelled: then the outcome is unknown, and the key stays claimed
        if not (isinstance(error, DatabaseError) and error.perhaps_done):
            await asyncio.shield(_release(database, attempt))
        raise
    await asyncio.shield(_keep(database, attempt, response))
    return response


async def _release(database: Database, attempt: Attempt) -> None:
    with suppress(DatabaseError):  # the original error says more
        await database.rows("idempotency.release", *attempt[:2])


async def _keep(database: Database, attempt: Attempt, response: Response) -> None:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    body = without_secret(bytes(response.body))
    try:
        await database.rows("idempotency.keep", *attempt[:2], response.status_code, headers, body)
        await database.rows("idempotency.sweep")
    except DatabaseError as error:  # the change is made, and the caller must learn that
        log.warning(
            "idempotency: the answer could not be stored, so a repeat of the request gets status 409: %s", error
        )


def _again(kept: Mapping[str, Any], attempt: Attempt) -> Response:
    if kept["request"] != attempt.digest:
        sentence = "this Idempotency-Key was used for a different request; use a new key for each request"
        raise HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)
    if kept["status"] == _IN_FLIGHT:
        raise _in_progress()
    return Response(kept["body"], kept["status"], {**kept["headers"], "idempotency-replayed": "true"})


def _in_progress() -> HttpProblem:
    sentence = "the first copy of this request is still in flight; retry, or check whether it took effect"
    return HttpProblem(HTTPStatus.CONFLICT, sentence, ("retry-after", "1"))


def without_secret(body: bytes) -> bytes:
    """An answer as it may be stored: without its secret, and marked as such."""
    if not body.startswith(b"{") or b'"secret"' not in body:
        return body
    document = json.loads(body)
    if _SECRET not in document:
        return body
    return json.dumps(document | {_SECRET: None, "shown_before": True}).encode()
