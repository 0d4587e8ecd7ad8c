"""HTTP/1.1 messages (RFC 9112): the heads of requests, read strictly, and responses as bytes.

Strictly: a head that two programs could read in two ways is refused.
"""

from __future__ import annotations

import re
from email.utils import formatdate
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HttpResponse: TypeAlias = tuple[int, str, bytes]
"""Status, header lines and body."""

CHUNKED: Final = -1
"""`Head.length` of a chunked body, which marks its own end."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE_LINE: Final = "connection: close\r\n"
"""The last header line of the last response on a connection."""
_KEEP_ALIVE_LINE: Final = "connection: keep-alive\r\n"
_RETURN: Final = ord("\r")
_MAX_CACHED: Final = 1_024
_MAX_CACHED_BYTES: Final = 1_024
"""Of one head."""
_MAX_SEEN: Final = 4_096
_SECOND: Final = 1_000_000_000
_HEAD: Final = "HEAD"

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE: Final = re.compile(rb"(%b) ([!-~]+) HTTP/1\.([01])\r\n" % _TOKEN)
HEADER_LINE: Final = re.compile(rb"(%b):([^\x00-\x08\x0a-\x1f\x7f]*)\r\n" % _TOKEN)
_HEADER_LINES: Final = re.compile(rb"(?:%b:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*" % _TOKEN)
_HOST: Final = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+,;=:\[\]]*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_FIRST_LINES: Final = {status.value: f"HTTP/1.1 {status} {status.phrase}\r\n" for status in HTTPStatus}


class Http1Error(Exception):
    """The bytes are no request that can be served; nothing after them on the connection can be read."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        """`status` and `sentence` are for the client."""
        self.status = status
        super().__init__(sentence)


class HeadLimits(NamedTuple):
    """What one head may contain."""

    headers: int = 100
    path: int = 8_192
    """Characters, before decoding."""
    options: int = 1_024
    """Bytes of all `Connection` headers, and of all `Expect` headers: both are split at commas."""


_DEFAULT_LIMITS: Final = HeadLimits()


class Head:
    """The request line and headers of a request. It never changes; equal heads may share one object."""

    __slots__ = (
        "expects_continue",
        "is_keep_alive",
        "keeps_open",
        "length",
        "lines",
        "method",
        "path",
        "query",
        "raw_path",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: str = "",
        lines: Sequence[tuple[str, str]] = (),
        raw_path: str | None = None,
    ) -> None:
        """`lines` are the headers in their order, with names in lower case; without `raw_path` it is `path`."""
        self.method = method
        self.path = path
        """Percent-decoded, without the query."""
        self.raw_path = path if raw_path is None else raw_path
        """As it was sent, without the query."""
        self.query = query
        self.lines: dict[str, list[str]] = {}
        for name, value in lines:
            self.lines.setdefault(name, []).append(value)
        self.length = 0
        """Bytes of the body, or `CHUNKED`."""
        self.keeps_open = True
        """Whether the connection may be used again."""
        self.is_keep_alive = False
        """Whether an HTTP/1.0 client asks for a connection that stays open; the response must confirm it."""
        self.expects_continue = False
        """Whether the client sends the body only after `100 Continue`."""

    def get(self, name: str) -> str | None:
        """The value of a header, the first of several; None without one. `name` is in lower case."""
        values = self.lines.get(name)
        return None if values is None else values[0]

    def get_all(self, name: str) -> Sequence[str]:
        """The values of all lines of a header."""
        return self.lines.get(name, ())


class HeadReader:
    """Reads heads and caches them: many clients send the same head with every request.

    A head is cached when it comes the second time. Heads with ids or times in them never do, and would only push
    others out.
    """

    def __init__(self, limits: HeadLimits = _DEFAULT_LIMITS, decode_path: Callable[[str], str] = unquote) -> None:
        """`decode_path` undoes percent-encoding as `urllib.parse.unquote` does."""
        self.cached: dict[bytes, Head] = {}
        """By their bytes. The parser looks here before it calls `read`."""
        self._seen: set[int] = set()
        """Hashes of heads that came once."""
        self._limits = limits
        self._decode_path = decode_path

    def read(self, raw: bytes) -> Head:
        """Read a head, up to the end of its last line; `Http1Error` if it is malformed or too large."""
        cached = self.cached.get(raw)
        if cached is not None:
            return cached
        head = read_head(raw, self._limits, self._decode_path)
        if len(raw) <= _MAX_CACHED_BYTES:
            self._cache(raw, head)
        return head

    def _cache(self, raw: bytes, head: Head) -> None:
        if hash(raw) not in self._seen:
            if len(self._seen) >= _MAX_SEEN:
                self._seen.clear()
            self._seen.add(hash(raw))
            return
        if len(self.cached) >= _MAX_CACHED:
            self.cached.clear()
        self.cached[raw] = head


def read_head(raw: bytes, limits: HeadLimits = _DEFAULT_LIMITS, decode_path: Callable[[str], str] = unquote) -> Head:
    """Read a head without the cache."""
    first = _REQUEST_LINE.match(raw)
    if first is None:
        raise _malformed(_Rule.FIRST_LINE)
    at = first.end()
    lines = _ascii_headers(raw[at:], limits.headers) or _headers(raw, at, limits.headers)
    path, query = _path_and_query(first[2].decode(), limits)
    head = Head(first[1].decode(), decode_path(path), query, lines, path)
    is_old = first[3] == b"0"
    _set_length(head, is_old=is_old)
    hosts = head.get_all("host")
    if len(hosts) > 1 or not (is_old or hosts) or not all(map(_HOST.fullmatch, hosts)):
        raise _malformed(_Rule.HOST)
    options = _members(head, "connection", limits)
    head.keeps_open = "close" not in options and (not is_old or "keep-alive" in options)
    head.is_keep_alive = is_old and head.keeps_open
    head.expects_continue = not is_old and "100-continue" in _members(head, "expect", limits)
    return head


def _headers(raw: bytes, at: int, most: int) -> list[tuple[str, str]]:
    """The headers that begin at `at`, names in lower case."""
    lines: list[tuple[str, str]] = []
    while at < len(raw):
        line = HEADER_LINE.match(raw, at)
        if line is None:
            raise _malformed(_Rule.LINES)
        if len(lines) == most:
            sentence = f"a request has at most {most} headers here"
            raise _too_large(sentence)
        lines.append((line[1].decode().lower(), _text(line[2].strip(b" \t"))))
        at = line.end()
    return lines


def _ascii_headers(block: bytes, most: int) -> list[tuple[str, str]] | None:
    """The fast path of `_headers` for sound headers in ASCII, in half the time; None for all others."""
    if not block.isascii() or block.count(b"\n") > most or _HEADER_LINES.fullmatch(block) is None:
        return None
    lines = []
    for line in block.decode().split("\r\n"):
        name, _, value = line.partition(":")
        lines.append((name.lower(), value.strip(" \t")))
    lines.pop()  # after the last line
    return lines


def refuse_bare_line(received: bytearray) -> None:
    """Raise `Http1Error` if the first line ends with a bare line feed: such a head would never end."""
    end = received.find(b"\n")
    if end == 0 or (end > 0 and received[end - 1] != _RETURN):
        raise _malformed(_Rule.FIRST_LINE)


def _path_and_query(target: str, limits: HeadLimits) -> tuple[str, str]:
    if not target.startswith("/") and "://" in target:  # the absolute form, which proxies receive
        try:
            parts = urlsplit(target)
        except ValueError:
            raise _malformed(_Rule.TARGET) from None
        path, query = parts.path or "/", parts.query
    else:
        path, _, query = target.partition("?")
    if len(path) > limits.path:
        sentence = f"a path has at most {limits.path} characters here"
        raise Http1Error(HTTPStatus.REQUEST_URI_TOO_LONG, sentence)
    return path, query


def _set_length(head: Head, *, is_old: bool) -> None:
    """Find where the body ends. Another program may read a request with two possible ends as two requests."""
    lengths, codings = head.get_all("content-length"), head.get_all("transfer-encoding")
    if codings:
        if is_old or lengths:
            raise _malformed(_Rule.ONE_END)
        if [_lower(coding) for coding in codings] != ["chunked"]:
            raise _malformed(_Rule.CODING)  # and not a 501: gateways that fail open admit every call on a 5xx
        head.length = CHUNKED
    elif lengths:
        if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
            raise _malformed(_Rule.LENGTH)
        head.length = int(lengths[0])


def _members(head: Head, name: str, limits: HeadLimits) -> list[str]:
    """The comma-separated members of a header, in lower case."""
    lines = head.get_all(name)
    if sum(map(len, lines)) > limits.options:
        sentence = f"all {name.capitalize()} headers together have at most {limits.options} bytes here"
        raise _too_large(sentence)
    return [_lower(member.strip(" \t")) for line in lines for member in line.split(",")]


def _lower(word: str) -> str:
    """A word in lower case, as bytes are lowered: Unicode has letters (KELVIN SIGN) whose lower case is ASCII."""
    return word.lower() if word.isascii() else word


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")  # which has a character for every byte


class _Rule(StrEnum):
    """What holds for every request."""

    FIRST_LINE = "the first line must be a method, a path and HTTP/1.1"
    LINES = "each header must be a name, a colon and a value on one line"
    HOST = "there must be exactly one valid Host header"
    TARGET = "the target must be a path or a URL"
    ONE_END = "a body must be chunked or have a length, not both"
    LENGTH = "Content-Length must be one whole number"
    CODING = "the only transfer coding is chunked"


def _too_large(sentence: str) -> Http1Error:
    return Http1Error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence)


def _malformed(rule: _Rule) -> Http1Error:
    return Http1Error(HTTPStatus.BAD_REQUEST, f"malformed HTTP/1.1 request: {rule}")


# Responses


class ResponseWriter:
    """Writes the responses of one server."""

    def __init__(self, clock_in_ns: Callable[[], int]) -> None:
        """`clock_in_ns` is the time of day, for the `Date` header."""
        self._clock_in_ns = clock_in_ns
        self._second = -1
        self._date = ""

    def write(self, head: Head, response: HttpResponse, *, is_last: bool) -> bytes:
        """Return a response as bytes. `is_last`: the connection is closed after it."""
        status, lines, body = response
        if is_last:
            lines = lines.removesuffix(CLOSE_LINE) + CLOSE_LINE
        elif head.is_keep_alive:
            lines += _KEEP_ALIVE_LINE
        second = self._clock_in_ns() // _SECOND
        if second != self._second:
            self._second = second
            self._date = formatdate(second, usegmt=True)
        first = _FIRST_LINES.get(status) or f"HTTP/1.1 {status} \r\n"  # a status without a standard phrase
        text = f"{first}{lines}date: {self._date}\r\ncontent-length: {len(body)}\r\n\r\n"
        return text.encode() if head.method == _HEAD else text.encode() + body


def header_lines(headers: Iterable[tuple[str, str]]) -> str:
    """Headers as lines. `ValueError` for a value that would break out of its line."""
    lines = []
    for name, value in headers:
        if not value.isascii() or "\r" in value or "\n" in value:
            msg = f"the value of {name} does not fit on a line of ASCII"
            raise ValueError(msg)
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)
