"""The server's side: where each command begins and ends in what a client sends."""

from __future__ import annotations

import re
from typing import Final

MAX_COMMAND_BYTES: Final = 16 * 1024 * 1024
_END: Final = b"\r\n"
_NUMBER: Final = re.compile(rb"(?:0|-?[1-9][0-9]{0,18})\r\n")
"""With the end of its line. Python itself would also read blanks, signs, underscores and zeros in front."""
_EMPTY: Final = re.compile(rb"(?:\*(?:0|-[0-9]+))?\r\n")
"""What Redis skips without a reply."""


class RequestReader:
    r"""Splits a stream of bytes, however it arrives, into whole commands.

    >>> reader = RequestReader()
    >>> reader.feed(b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$2\r\n\r")
    [b'*1\r\n$4\r\nPING\r\n']
    >>> reader.feed(b"\n\r\nPING\r\n")
    [b'*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n', b'PING\r\n']
    """

    def __init__(self, max_bytes: int = MAX_COMMAND_BYTES) -> None:
        """`max_bytes` bounds one command."""
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The commands that are whole now; raises `ValueError` if the bytes are no RESP or a command is too large."""
        buffer = self._buffer
        buffer += data
        commands = []
        while (end := self._end_of_command(buffer)) is not None:
            command = bytes(buffer[:end])
            del buffer[:end]
            if _EMPTY.fullmatch(command) is None:
                commands.append(command)
        if len(buffer) > self._max_bytes:
            msg = f"the command is larger than {self._max_bytes} bytes"
            raise ValueError(msg)
        return commands

    def _end_of_command(self, buffer: bytearray) -> int | None:
        """Where the first command ends: an array of strings with their lengths, or a plain line."""
        at = _end_of_line(buffer, 0)
        if at is None or not buffer.startswith(b"*"):
            return at
        for _ in range(_number(buffer[1:at])):
            start, at = at, _end_of_line(buffer, at)
            if at is None:
                return None
            at += self._length(bytes(buffer[start:at])) + len(_END)
        return at if at <= len(buffer) else None

    def _length(self, line: bytes) -> int:
        length = _number(line[1:])
        if not line.startswith(b"$") or not 0 <= length <= self._max_bytes:
            msg = f"{line!r} does not begin a string of at most {self._max_bytes} bytes"
            raise ValueError(msg)
        return length


def _number(line: bytes | bytearray) -> int:
    if _NUMBER.fullmatch(line) is None:
        msg = f"{bytes(line[:40])!r} is not a number"
        raise ValueError(msg)
    return int(line)


def _end_of_line(buffer: bytearray, start: int) -> int | None:
    end = buffer.find(_END, start)
    return None if end < 0 else end + len(_END)
