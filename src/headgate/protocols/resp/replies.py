"""The client's side: encode commands, split a stream of bytes into replies. hiredis is the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import hiredis
from hiredis import ProtocolError, ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NO_REPLY", "ProtocolError", "ReplyError", "ReplyReader", "encode_command"]

encode_command: Final = cast("Callable[[tuple[bytes | str | int, ...]], bytes]", hiredis.pack_command)
"""The bytes of one command, given as a tuple of its words."""

NO_REPLY: Final = object()
"""What `ReplyReader.next` returns until a whole reply has arrived. None, False and 0 are replies."""


class ReplyReader:
    r"""Splits a stream of bytes, however it arrives, into replies.

    >>> reader = ReplyReader()
    >>> reader.feed(b"+OK\r\n*2\r\n:1\r\n$2\r\nh")
    >>> reader.next(), reader.next() is NO_REPLY
    (b'OK', True)
    >>> reader.feed(b"i\r\n")
    >>> reader.next()
    [1, b'hi']
    """

    __slots__ = ("_next", "feed", "has_data")

    def __init__(self) -> None:
        parser = hiredis.Reader(notEnoughData=NO_REPLY)
        self.feed: Callable[[bytes], None] = parser.feed
        """Take in what arrived."""
        self.has_data: Callable[[], bool] = parser.has_data
        """Whether bytes are left that no reply has used."""
        self._next: Callable[[], object] = parser.gets

    def next(self) -> object:
        """The next reply, an error reply as a `ReplyError`; `NO_REPLY` if it is not whole yet.

        Push messages of RESP 3 belong to no command and are skipped. Raises `ProtocolError` if the bytes are no RESP.
        """
        reply = self._next()
        while isinstance(reply, hiredis.PushNotification):
            reply = self._next()
        return reply
