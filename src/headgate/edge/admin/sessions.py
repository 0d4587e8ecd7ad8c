"""Sessions of the dashboard: a browser signs in with a token once, and then sends a cookie.

The token stays here, in memory, and is checked again with every call, so a token that is revoked or expires ends its
sessions too. The cookie is a random number that no script can read (HttpOnly) and no other site can have sent
(SameSite=Strict). Besides, a call with a cookie needs a header that a page of another site cannot add, and must come
from this site if the browser says where it comes from.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from headgate.adapters.clock import monotonic
from headgate.edge.admin.access import token_of, unauthorized
from headgate.edge.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

COOKIE: Final = "headgate_session"
MARK: Final = "headgate-dashboard"
"""The header that calls with a cookie need, with any value."""
MAX_SECONDS: Final = 12 * 3_600
IDLE_SECONDS: Final = 2 * 3_600
MAX_SESSIONS: Final = 1_000
MAX_OF_ONE_TOKEN: Final = 20
_RANDOM_BYTES: Final = 32
_MAX_COOKIES: Final = 8_192
_ENDED: Final = "the session has ended; sign in again"


class _Session(NamedTuple):
    token: str
    until: float
    used: float


class Sessions:
    """Those that are open. A table of bounded size: the one that was used least recently ends first."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """`clock` counts seconds."""
        self._clock = clock
        self._open: dict[bytes, _Session] = {}
        """By a hash of the cookie, the least recently used first."""

    def __len__(self) -> int:
        """How many are open, or have ended unnoticed."""
        return len(self._open)

    def begin(self, token: str) -> str:
        """A new session of a token that was found good; returns the value of its cookie."""
        now = self._clock()
        same = [key for key, each in self._open.items() if each.token == token]
        for key in same[: max(0, len(same) - MAX_OF_ONE_TOKEN + 1)]:
            del self._open[key]
        while len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        cookie = secrets.token_urlsafe(_RANDOM_BYTES)
        self._open[_hashed(cookie)] = _Session(token, now + MAX_SECONDS, now)
        return cookie

    def token(self, cookie: str) -> str | None:
        """The token of a session that is open; using it keeps it from ending."""
        key, now = _hashed(cookie), self._clock()
        found = self._open.pop(key, None)
        if found is None or now >= found.until or now >= found.used + IDLE_SECONDS:
            return None
        self._open[key] = found._replace(used=now)  # last in the order
        return found.token

    def end(self, cookie: str) -> None:
        """Sign out."""
        self._open.pop(_hashed(cookie), None)


def credential(scope: Scope, sessions: Callable[[], Sessions]) -> str:
    """The token of a call: from its `Authorization` header, or else of its session; `HttpProblem` if it has none."""
    bearer = _lines(scope, b"authorization")
    if bearer:
        return token_of(bearer)
    cookie = cookie_of(scope)
    if cookie is None:
        return token_of(bearer)
    refuse_other_sites(scope)
    token = sessions().token(cookie)
    if token is None:
        raise unauthorized(_ENDED)
    return token


def cookie_of(scope: Scope) -> str | None:
    """The value of the session's cookie; None if there is none, or more than one."""
    given = b"; ".join(_lines(scope, b"cookie"))[:_MAX_COOKIES].decode("latin-1")
    pairs = (pair.strip().partition("=") for pair in given.split(";"))
    found = [value for name, _, value in pairs if name == COOKIE and value]
    return found[0] if len(found) == 1 else None


def refuse_other_sites(scope: Scope) -> None:
    """Raise `HttpProblem` for a call that a page of another site may have made."""
    if not _lines(scope, MARK.encode()):
        sentence = f"a call with a session's cookie needs the header {MARK}; programs send a token instead"
        raise HttpProblem(HTTPStatus.FORBIDDEN, sentence)
    said, origin = _lines(scope, b"sec-fetch-site"), _lines(scope, b"origin")
    if said:
        same = said == [b"same-origin"]
    else:
        same = not origin or [urlsplit(origin[0].decode("latin-1")).netloc.encode("latin-1")] == _lines(scope, b"host")
    if not same:
        raise HttpProblem(HTTPStatus.FORBIDDEN, "the call comes from another site; sign in to the dashboard itself")


def cookie_line(value: str, scope: Scope, seconds: int = MAX_SECONDS) -> str:
    """The `Set-Cookie` header; with `Secure` where the browser is connected by TLS, be it to a proxy."""
    origin = _lines(scope, b"origin")
    by_tls = scope.get("scheme") == "https" or any(each.startswith(b"https://") for each in origin)
    secure = "; Secure" if by_tls else ""
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _lines(scope: Scope, name: bytes) -> list[bytes]:
    return [value for each, value in scope["headers"] if each == name]


def _hashed(cookie: str) -> bytes:
    return sha256(cookie.encode()).digest()
