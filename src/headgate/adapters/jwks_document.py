"""Fetching the document with an issuer's keys, from ``https://`` or ``file://``."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, Request

from headgate.errors import HeadgateError, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext

_SECONDS: Final = 4.0
_MAX_BYTES: Final = 1024 * 1024
_ACCEPT: Final = {"Accept": "application/jwk-set+json, application/json", "User-Agent": "headgate"}


def jwks_at(url: str, tls: SSLContext | None = None) -> Callable[[], Awaitable[bytes]]:
    """A function that fetches the document at an address. Without TLS it could be forged, so ``http://`` is refused.

    `tls` replaces the machine's own trusted certificates.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme == "https" and parts.hostname:
        return lambda: asyncio.to_thread(partial(_fetched, url, tls))
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
        return lambda: asyncio.to_thread(partial(_read, Path(unquote(parts.path))))
    msg = "HEADGATE_JWT_JWKS_URL is neither https://… nor file:///…; keys fetched without TLS could be forged"
    raise InvalidSettings(msg)


def _fetched(url: str, tls: SSLContext | None) -> bytes:
    # Nothing but https, and nothing that follows redirects: elsewhere there may be no TLS, or our own network.
    opener = OpenerDirector()
    opener.add_handler(HTTPSHandler(context=tls))
    with opener.open(Request(url, headers=_ACCEPT), timeout=_SECONDS) as response:  # noqa: S310 (https only)
        if response.status != 200:  # noqa: PLR2004 (OK)
            msg = f"{urlsplit(url).hostname} answered {response.status}"
            raise HeadgateError(msg)
        return _bounded(response.read(_MAX_BYTES + 1))


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return _bounded(file.read(_MAX_BYTES + 1))


def _bounded(document: bytes) -> bytes:
    if len(document) > _MAX_BYTES:
        msg = f"the key document has more than {_MAX_BYTES} bytes"
        raise HeadgateError(msg)
    return document
