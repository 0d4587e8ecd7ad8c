"""What h11, llhttp and our engine make of the bytes of one connection, in one form."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import h11
import httptools

from headgate.protocols.http1.messages import HeadReader, Http1Error
from headgate.protocols.http1.parser import RequestParser

_MAX_BODY = 65_536


class Reading(NamedTuple):
    """The requests of a connection, and why it ends: empty if it does not."""

    requests: tuple[tuple[str, str, str, bytes], ...]
    """Method, decoded path, query and body."""
    refusal: str = ""


def ours(data: bytes) -> Reading:
    """By `RequestParser`."""
    parser = RequestParser(HeadReader(), max_head=65_536, max_body=_MAX_BODY)
    requests = []
    try:
        request = parser.receive_first(data)
        while request is not None:
            head, body = request
            requests.append((head.method, head.path, head.query, body))
            if not head.keeps_open:
                break
            request = parser.next_request()
    except Http1Error as error:
        return Reading(tuple(requests), str(error).partition(": ")[2] or str(error))
    return Reading(tuple(requests))


def _target(raw: bytes) -> tuple[str, str]:
    text = raw.decode("latin-1")
    if not text.startswith("/") and "://" in text:
        parts = urlsplit(text)
        return unquote(parts.path or "/"), parts.query
    path, _, query = text.partition("?")
    return unquote(path), query


def by_h11(data: bytes) -> Reading:
    """By h11, as a server."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=65_536)
    connection.receive_data(data)
    requests = []
    try:
        while True:
            request, body = _next_of_h11(connection)
            if request is None:
                break
            requests.append((request.method.decode(), *_target(request.target), body))
            if connection.their_state is not h11.DONE:
                break
            for event in (h11.Response(status_code=200, headers=[("content-length", "0")]), h11.EndOfMessage()):
                connection.send(event)
            if connection.our_state is not h11.DONE:
                break
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        return Reading(tuple(requests), f"{error}")
    except ValueError as error:  # of urlsplit
        return Reading(tuple(requests), f"target: {error}")
    return Reading(tuple(requests))


def _next_of_h11(connection: h11.Connection) -> tuple[h11.Request | None, bytes]:
    request, body = None, b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return request, body
        else:
            return None, b""


class _Collector:
    """Gets the callbacks of httptools."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, bytes]] = []
        self.parser: httptools.HttpRequestParser
        self._url = self._body = b""

    def on_message_begin(self) -> None:
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.requests.append((self.parser.get_method().decode(), *_target(self._url), self._body))


def by_llhttp(data: bytes) -> Reading:
    """By httptools, which is llhttp."""
    collector = _Collector()
    collector.parser = parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        return Reading(tuple(collector.requests), "upgrade")
    except (httptools.HttpParserError, ValueError) as error:
        return Reading(tuple(collector.requests), f"{type(error).__name__}: {error.__context__ or error}")
    return Reading(tuple(collector.requests))
