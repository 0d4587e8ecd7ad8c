"""The head of an HTTP/1.1 request, read strictly (RFC 9112): what two programs could read in two ways is refused."""

from __future__ import annotations

import re
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.core.path import MAX_PATH, percent_decoded
from headgate.edge.problems import CLOSE, Unanswerable

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LINES: Final = 100
CHUNKED: Final = -1
"""The length of a body that says itself where it ends."""
_RETURN: Final = ord("\r")
_MAX_OPTIONS: Final = 1_024
"""Bytes of all `Connection` and all `Expect` headers: each is taken apart."""
_REMEMBERED: Final = 1_024
_LONGEST_REMEMBERED: Final = 1_024

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE: Final = re.compile(rb"(%b) ([!-~]+) HTTP/1\.([01])\r\n" % _TOKEN)
LINE: Final = re.compile(rb"(%b):([^\x00-\x08\x0a-\x1f\x7f]*)\r\n" % _TOKEN)
"""A header."""
_HOST: Final = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+,;=:\[\]]*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")


class Head:
    """What a request says before its body. It never changes, and equal ones may share it."""

    __slots__ = ("expects_continue", "has_to_be_told", "keeps_open", "length", "lines", "method", "path", "query")

    def __init__(self, method: str, path: str, query: str = "", lines: Sequence[tuple[str, str]] = ()) -> None:
        """`lines` are its headers, with names in lower case, in their order."""
        self.method = method
        self.path = path
        """Percent-decoded, without the query."""
        self.query = query
        self.lines: dict[str, list[str]] = {}
        for name, value in lines:
            self.lines.setdefault(name, []).append(value)
        self.length = 0
        """Of the body."""
        self.keeps_open = True
        """Whether the connection may be used again."""
        self.has_to_be_told = False
        """Whether the caller takes a connection to be closed that it is not told to be open, as before HTTP/1.1."""
        self.expects_continue = False
        """Whether the body is kept back until it is asked for."""

    def get(self, name: str) -> str | None:
        """One header's value, if it is there; of several lines the first. The name is in lower case."""
        found = self.lines.get(name)
        return None if found is None else found[0]

    def get_all(self, name: str) -> Sequence[str]:
        """The values of all lines of a header."""
        return self.lines.get(name, ())


class Heads:
    """Reads heads. A caller sends nearly the same one with every request, so those that came are remembered."""

    def __init__(self) -> None:
        """None came yet."""
        self._known: dict[bytes, Head] = {}

    def read(self, raw: bytes) -> Head:
        """A head, up to the end of its last line; `Unanswerable` if it is none, and nothing can follow it."""
        known = self._known.get(raw)
        if known is not None:
            return known
        head = read_head(raw)
        if len(raw) <= _LONGEST_REMEMBERED:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[raw] = head
        return head


def read_head(raw: bytes) -> Head:
    """The same, looked at anew."""
    first = _REQUEST_LINE.match(raw)
    if first is None:
        raise _malformed(_Rule.FIRST_LINE)
    lines: list[tuple[str, str]] = []
    at = first.end()
    while at < len(raw):
        line = LINE.match(raw, at)
        if line is None:
            raise _malformed(_Rule.LINES)
        if len(lines) == MOST_LINES:
            sentence = f"a request has at most {MOST_LINES} headers here"
            raise _too_large(sentence)
        lines.append((line[1].decode().lower(), _text(line[2].strip(b" \t"))))
        at = line.end()
    head = Head(first[1].decode(), *_path_and_query(first[2].decode()), lines)
    is_old = first[3] == b"0"
    _find_length(head, is_old=is_old)
    hosts = head.get_all("host")
    if len(hosts) > 1 or not (is_old or hosts) or not all(map(_HOST.fullmatch, hosts)):
        raise _malformed(_Rule.HOST)
    options = _members(head, "connection")
    head.keeps_open = "close" not in options and (not is_old or "keep-alive" in options)
    head.has_to_be_told = is_old and head.keeps_open
    head.expects_continue = not is_old and "100-continue" in _members(head, "expect")
    return head


def refuse_bare_line(received: bytearray) -> None:
    """Refuse what does not end its first line as HTTP does, and so would never end its head."""
    end = received.find(b"\n")
    if end == 0 or (end > 0 and received[end - 1] != _RETURN):
        raise _malformed(_Rule.FIRST_LINE)


def _path_and_query(target: str) -> tuple[str, str]:
    if not target.startswith("/") and "://" in target:  # as proxies are asked
        try:
            parts = urlsplit(target)
        except ValueError:
            raise _malformed(_Rule.TARGET) from None
        return _decoded(parts.path) or "/", parts.query
    path, _, query = target.partition("?")
    return _decoded(path), query


def _decoded(path: str) -> str:
    if len(path) > MAX_PATH:
        sentence = f"a path has at most {MAX_PATH} characters here"
        raise Unanswerable(HTTPStatus.REQUEST_URI_TOO_LONG, sentence, CLOSE)
    return percent_decoded(path, "replace")


def _find_length(head: Head, *, is_old: bool) -> None:
    """Where the body ends. A request that could end in two places might be two requests to somebody else."""
    lengths, codings = head.get_all("content-length"), head.get_all("transfer-encoding")
    if codings:
        if is_old or lengths:
            raise _malformed(_Rule.ENDS_ONCE)
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise _malformed(_Rule.CODING)  # and not a 501: gateways let everybody pass on a fault of ours
        head.length = CHUNKED
    elif lengths:
        if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
            raise _malformed(_Rule.LENGTH)
        head.length = int(lengths[0])


def _members(head: Head, name: str) -> list[str]:
    """What the lines of a header list, in lower case."""
    lines = head.get_all(name)
    if sum(map(len, lines)) > _MAX_OPTIONS:
        sentence = f"all {name.capitalize()} headers together have at most {_MAX_OPTIONS} bytes here"
        raise _too_large(sentence)
    return [member.strip(" \t").lower() for line in lines for member in line.split(",")]


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")  # which has a character for every byte


class _Rule(StrEnum):
    """What holds for every request."""

    FIRST_LINE = "its first line is a method, a path and HTTP/1.1"
    LINES = "each of its headers is a name, a colon and a value on one line"
    HOST = "it names its host, once"
    TARGET = "what it asks for is a path, or a URL"
    ENDS_ONCE = "a body is either chunked or has a length"
    LENGTH = "Content-Length is one whole number"
    CODING = "a body is chunked, and coded in no other way"


def _too_large(sentence: str) -> Unanswerable:
    return Unanswerable(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence, CLOSE)


def _malformed(rule: _Rule) -> Unanswerable:
    return Unanswerable(HTTPStatus.BAD_REQUEST, f"this is not a request of HTTP/1.1: {rule}", CLOSE)
