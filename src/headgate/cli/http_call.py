"""One HTTP exchange, for commands that ask a running service."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    applied: str = ""
    """The header ``Headgate-Applied``, as in ``2/3``."""


def call(
    url: str,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float,
    hint: str,
) -> Answer:
    """Ask for `target` at the service at `url`; if nobody answers, `HeadgateError` says so with a hint what to do."""
    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request(method, parts.path + target, body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.read(), response.getheader("Headgate-Applied", ""))
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = f"no answer from {url} ({reason}); {hint}"
        raise HeadgateError(msg) from error
    finally:
        connection.close()
