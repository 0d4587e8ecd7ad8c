"""Request bodies: bounded while they are read, and strict JSON. Large answers are written in a thread."""

from __future__ import annotations

import asyncio
import json
import math
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from headgate.controlplane.gc_paused import in_thread
from headgate.edge.problems import CLOSE, HttpProblem
from headgate.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import Request


MAX_BYTES: Final = 1024 * 1024
MAX_BYTES_OF_RULES: Final = 64 * 1024 * 1024
_SECONDS: Final = 60.0
_QUICKLY_PARSED: Final = 64 * 1024
_MAX_COMMAS: Final = 4_000_000
"""Forty for each of 100,000 rules. Three bytes of a body can take a hundred bytes of memory once parsed."""
_JSON: Final = re.compile(r'application/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?', re.IGNORECASE)


def max_bytes(path: str) -> int:
    """How large a body may be: a rule set has up to 100,000 rules, any other body describes one record."""
    is_rule_set = path.startswith("/v1/ruleset/") and path != "/v1/ruleset/draft"
    return MAX_BYTES_OF_RULES if is_rule_set else MAX_BYTES


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; `HttpProblem` if it is too large or arrives too slowly."""
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "Content-Length is not a whole number", CLOSE)
    if len(length) > len(str(MAX_BYTES_OF_RULES)) or int(length) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        sentence = f"timeout: the body was not complete after {_SECONDS:g} seconds"
        raise HttpProblem(HTTPStatus.REQUEST_TIMEOUT, sentence, CLOSE) from None
    except ClientDisconnect:
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "the connection closed before the body was complete", CLOSE) from None
    return bytes(body)


async def parse_body(request: Request, body: bytes) -> object:
    """The JSON of a body. Large bodies are parsed in a thread, so that checks do not wait."""
    kind = request.headers.get("content-type", "")
    if not _JSON.fullmatch(kind.strip()):
        sentence = f"send the body as Content-Type: application/json, not {short_repr(kind)}"
        raise HttpProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, ("accept", "application/json"))
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        sentence = "send the body uncompressed, without a Content-Encoding"
        raise HttpProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, ("accept-encoding", "identity"))
    if body.count(b",") > _MAX_COMMAS:
        sentence = f"the body has more than {_MAX_COMMAS:,} commas; send a smaller document"
        raise HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
    try:
        return parse(body) if len(body) <= _QUICKLY_PARSED else await in_thread(parse, body)
    except RecursionError:
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "the body is nested too deeply") from None
    except ValueError as error:
        raise HttpProblem(HTTPStatus.BAD_REQUEST, f"the body is not valid JSON: {_reason(error)}") from None


def parse(body: bytes) -> object:
    """Strict JSON (RFC 8259); `ValueError` says what is wrong with it.

    Python's own parser also accepts NaN, infinite numbers, halves of surrogate pairs, and of two equal names takes
    the last.
    """
    data = json.loads(
        body.decode(), object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
    )
    if re.search(rb"\\u[dD][89a-fA-F]", body):
        json.dumps(data, ensure_ascii=False).encode()
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        msg = f"{short_repr(twice)} appears twice"
        raise ValueError(msg)
    return found


def _constant(word: str) -> float:
    msg = f"{word} is not a number"
    raise ValueError(msg)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        msg = f"{short_repr(text)} is too large"
        raise ValueError(msg)
    return number


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python refuses whole numbers of thousands of digits
        msg = "a number has too many digits"
        raise ValueError(msg) from None


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "a string contains half of a surrogate pair, which is not a character"
    text = str(error)
    return f"{text[:1].lower()}{text[1:]}" if isinstance(error, json.JSONDecodeError) else text


def _too_large(limit: int) -> HttpProblem:
    sentence = f"the body is too large; the limit here is {limit} bytes"
    return HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, CLOSE)


async def large_json(data: Mapping[str, Any]) -> Response:
    """A JSON answer of any size, written in a thread so that checks do not wait."""
    body = await asyncio.to_thread(lambda: json.dumps(data, ensure_ascii=False).encode())
    return Response(body, media_type="application/json")
