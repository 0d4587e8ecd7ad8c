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

from headgate.controlplane.undisturbed import aside
from headgate.edge.problems import CLOSE, Unanswerable
from headgate.errors import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import Request


MOST_BYTES: Final = 1024 * 1024
MOST_BYTES_OF_RULES: Final = 64 * 1024 * 1024
_SECONDS: Final = 60.0
_QUICKLY_PARSED: Final = 64 * 1024
_MOST_PARTS: Final = 4_000_000
"""Forty for each of a hundred thousand rules. What takes three bytes in a body takes a hundred once it is read."""
_JSON: Final = re.compile(r'application/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?', re.IGNORECASE)


def most_bytes(path: str) -> int:
    """How large a body may be: a rule set is one of up to 100,000 rules, all else is one thing."""
    return MOST_BYTES_OF_RULES if path.startswith("/v1/ruleset/") else MOST_BYTES


async def read_body(request: Request, most: int) -> bytes:
    """All of the body, as long as it is not too large and comes in time."""
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise Unanswerable(HTTPStatus.BAD_REQUEST, "Content-Length is not a whole number", CLOSE)
    if len(length) > len(str(MOST_BYTES_OF_RULES)) or int(length) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        sentence = f"the body was not all there after {_SECONDS:g} seconds"
        raise Unanswerable(HTTPStatus.REQUEST_TIMEOUT, sentence, CLOSE) from None
    except ClientDisconnect:
        raise Unanswerable(HTTPStatus.BAD_REQUEST, "the body broke off", CLOSE) from None
    return bytes(body)


async def parsed(request: Request, body: bytes) -> object:
    """What a body says. Large ones are parsed in a thread, so that nobody waits for them."""
    kind = request.headers.get("content-type", "")
    if not _JSON.fullmatch(kind.strip()):
        sentence = f"send the body as Content-Type: application/json, not {shown(kind)}"
        raise Unanswerable(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, ("accept", "application/json"))
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        sentence = "send the body as it is, without a Content-Encoding"
        raise Unanswerable(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence, ("accept-encoding", "identity"))
    if body.count(b",") > _MOST_PARTS:
        sentence = f"a body has at most {_MOST_PARTS:,} parts with commas between them"
        raise Unanswerable(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
    try:
        return parse(body) if len(body) <= _QUICKLY_PARSED else await aside(parse, body)
    except RecursionError:
        raise Unanswerable(HTTPStatus.BAD_REQUEST, "the body is nested too deeply") from None
    except ValueError as error:
        raise Unanswerable(HTTPStatus.BAD_REQUEST, f"the body is not valid JSON: {_reason(error)}") from None


def parse(body: bytes) -> object:
    """JSON as the standard means it; `ValueError` says what is wrong with it.

    Python's own reader also takes NaN, numbers that are infinite, halves of surrogate pairs,
    and lets the last of two equal names win.
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
        msg = f"{shown(twice)} is there twice"
        raise ValueError(msg)
    return found


def _constant(word: str) -> float:
    msg = f"{word} is not a number"
    raise ValueError(msg)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        msg = f"{shown(text)} is too large"
        raise ValueError(msg)
    return number


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python does not read whole numbers of thousands of digits
        msg = "a number has too many digits"
        raise ValueError(msg) from None


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "a text in it has half of a surrogate pair, which is not a character"
    text = str(error)
    return f"{text[:1].lower()}{text[1:]}" if isinstance(error, json.JSONDecodeError) else text


def _too_large(most: int) -> Unanswerable:
    sentence = f"a body has at most {most} bytes here"
    return Unanswerable(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, CLOSE)


async def large(data: Mapping[str, Any]) -> Response:
    """An answer with these members."""
    body = await asyncio.to_thread(lambda: json.dumps(data, ensure_ascii=False).encode())
    return Response(body, media_type="application/json")
