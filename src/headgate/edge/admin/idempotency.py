"""Requests that may be sent twice: with an Idempotency-Key the second copy gets the first one's answer.

What is kept has no secrets in it. An answer that shows one is kept without it, and says so.
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

from headgate.edge.problems import Unanswerable
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from headgate.ports import Database

log = logging.getLogger("headgate")

_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")
_KEPT_HEADERS: Final = ("content-type", "etag", "location")
_UNDER_WAY: Final = 0
_SECRET: Final = "secret"  # noqa: S105 (the name of a member)


class Attempt(NamedTuple):
    """One copy of a request."""

    token: str
    """The id of the token it came with; keys of different tokens have nothing to do with each other."""
    key: str
    digest: bytes
    """What tells this request from any other."""


def read_key(given: Sequence[str]) -> str:
    """The key of a request that has one."""
    if len(given) != 1 or not _KEY.fullmatch(given[0]):
        raise Unanswerable(HTTPStatus.BAD_REQUEST, "Idempotency-Key is one text of 1 to 255 printable ASCII characters")
    return given[0]


def digest_of(method: str, path: str, query: str, body: bytes) -> bytes:
    """The same for the same request, and for no other."""
    digest = hashlib.sha256(f"{method}\0{path}\0{query}\0".encode())
    digest.update(body)
    return digest.digest()


async def once(database: Database, attempt: Attempt, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Answer a request, or repeat what was answered to it. Only success is kept: what failed can be tried again."""
    if await database.row("idempotency.claim", *attempt, _UNDER_WAY) is None:
        kept = await database.row("idempotency.get", attempt.token, attempt.key)
        if kept is not None:
            return _again(kept, attempt)
        raise _in_progress()  # the first copy has just failed
    try:
        response = await answer()
    except Exception:  # not if it is cancelled: then nobody knows what was done, and the key says so
        await asyncio.shield(_release(database, attempt))
        raise
    await asyncio.shield(_keep(database, attempt, response))
    return response


async def _release(database: Database, attempt: Attempt) -> None:
    with suppress(DatabaseError):  # what is raised already says more
        await database.rows("idempotency.release", *attempt[:2])


async def _keep(database: Database, attempt: Attempt, response: Response) -> None:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    body = without_secret(bytes(response.body))
    try:
        await database.rows("idempotency.keep", *attempt[:2], response.status_code, headers, body)
        await database.rows("idempotency.sweep")
    except DatabaseError as error:  # it was done, and the caller shall hear that
        log.warning("the answer to a request with an Idempotency-Key could not be kept: %s", error)


def _again(kept: Mapping[str, Any], attempt: Attempt) -> Response:
    if kept["request"] != attempt.digest:
        sentence = "this Idempotency-Key was used for another request; use a new one for each"
        raise Unanswerable(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)
    if kept["status"] == _UNDER_WAY:
        raise _in_progress()
    return Response(kept["body"], kept["status"], {**kept["headers"], "idempotency-replayed": "true"})


def _in_progress() -> Unanswerable:
    sentence = "the first copy of this request has no answer yet; ask again, or look whether it took effect"
    return Unanswerable(HTTPStatus.CONFLICT, sentence, ("retry-after", "1"))


def without_secret(body: bytes) -> bytes:
    """An answer as it may be kept: where it shows a secret it says instead that it did."""
    if not body.startswith(b"{") or b'"secret"' not in body:
        return body
    document = json.loads(body)
    if _SECRET not in document:
        return body
    return json.dumps(document | {_SECRET: None, "shown_before": True}).encode()
