"""Decoding header blocks (HPACK, RFC 7541) at a bounded cost.

The decoder of the package `hpack` bounds the size of what comes out, not the work: a block of 16 KiB can hold 16,384
table size updates, or one whole number of 16 KiB. Here each part has a bound of its own. Huffman codes and the static
table are the package's.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from headgate.protocols.http2.frames import Broken, ErrorCode, Reason

MAX_LIST_BYTES: Final = 16_384
"""Of all fields of a block, each counted with 32 bytes more than its text (RFC 9113, section 6.5.2)."""
MAX_FIELDS: Final = 128
_MAX_TABLE: Final = 4_096
_OVERHEAD: Final = 32
_MAX_SIZE_UPDATES: Final = 2
"""At the beginning of a block; a third one would say nothing new (RFC 7541, section 4.2)."""
_MAX_SHIFT: Final = 21
"""Of the last byte of a whole number: none that is in order is longer."""
_INDEXED, _WITH_INDEXING, _NEW_SIZE, _HUFFMAN, _MORE = 0x80, 0x40, 0x20, 0x80, 0x80
_BITS_7, _BITS_6, _BITS_5, _BITS_4 = 0x7F, 0x3F, 0x1F, 0x0F
_STATIC: Final = tuple(
    (name.decode(), value.decode(), _OVERHEAD + len(name) + len(value)) for name, value in HeaderTable.STATIC_TABLE
)


class HeaderDecoder:
    """Decodes the blocks of one connection, in their order."""

    def __init__(self) -> None:
        """Begin with an empty table."""
        self.version = 0
        """Another one whenever the table has changed."""
        self.fields = 0
        """How many fields the block decoded last has."""
        self._entries: deque[tuple[str, str, int]] = deque()
        self._size = 0
        self._most = _MAX_TABLE

    def decode(self, block: bytes) -> dict[str, str]:
        """The fields of a block, by name; of several of one name the last."""
        try:
            return self._decode(block)
        except (IndexError, UnicodeDecodeError, HPACKError) as error:
            raise Broken(ErrorCode.COMPRESSION_ERROR) from error

    def _decode(self, block: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        at, end, size, count = self._sized(block), len(block), 0, 0
        while at < end:
            first = block[at]
            if first & _INDEXED:
                index, at = _integer(block, at, _BITS_7)
                entry = self._entry(index)
            else:
                mask = _BITS_6 if first & _WITH_INDEXING else _BITS_4
                if first & _NEW_SIZE and mask == _BITS_4:  # only at the beginning of a block
                    raise Broken(ErrorCode.COMPRESSION_ERROR)
                index, at = _integer(block, at, mask)
                entry, at = self._literal(block, at, index)
                if mask == _BITS_6:
                    self._add(entry)
            size += entry[2]
            count += 1
            if size > MAX_LIST_BYTES or count > MAX_FIELDS:
                raise Broken(
                    ErrorCode.ENHANCE_YOUR_CALM, Reason.HEADER_FIELDS, f"{count} fields, {size} bytes in one block"
                )
            found[entry[0]] = entry[1]
        self.fields = count
        return found

    def _sized(self, block: bytes) -> int:
        """Take the new sizes of the table that a block begins with; where they end."""
        at, left = 0, _MAX_SIZE_UPDATES
        while at < len(block) and block[at] & (_INDEXED | _WITH_INDEXING | _NEW_SIZE) == _NEW_SIZE:
            size, at = _integer(block, at, _BITS_5)
            left -= 1
            if size > _MAX_TABLE or left < 0:
                raise Broken(ErrorCode.COMPRESSION_ERROR)
            self._most = size
            self.version += 1
            self._shrink(size)
        return at

    def _entry(self, index: int) -> tuple[str, str, int]:
        if not index:
            raise Broken(ErrorCode.COMPRESSION_ERROR)
        return _STATIC[index - 1] if index <= len(_STATIC) else self._entries[index - len(_STATIC) - 1]

    def _literal(self, block: bytes, at: int, index: int) -> tuple[tuple[str, str, int], int]:
        if index:
            name, of_entry, size = self._entry(index)
            size -= len(of_entry.encode())
        else:
            raw, at = _string(block, at)
            name, size = raw.decode(), _OVERHEAD + len(raw)
        raw, at = _string(block, at)
        return (name, raw.decode(), size + len(raw)), at

    def _add(self, entry: tuple[str, str, int]) -> None:
        self.version += 1
        self._shrink(self._most - entry[2])
        if entry[2] <= self._most:
            self._entries.appendleft(entry)
            self._size += entry[2]

    def _shrink(self, size: int) -> None:
        while self._entries and self._size > size:
            self._size -= self._entries.pop()[2]


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """A whole number whose first byte has so many bits of it (section 5.1), and where it ends."""
    number = block[at] & mask
    at += 1
    if number != mask:
        return number, at
    for shift in range(0, _MAX_SHIFT + 1, 7):
        byte = block[at]
        at += 1
        number += (byte & _BITS_7) << shift
        if byte < _MORE:
            return number, at
    raise Broken(ErrorCode.COMPRESSION_ERROR)


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """A text (section 5.2), and where it ends."""
    is_huffman = block[at] & _HUFFMAN
    size, at = _integer(block, at, _BITS_7)
    text = block[at : at + size]
    if len(text) != size:
        raise Broken(ErrorCode.COMPRESSION_ERROR)
    return decode_huffman(text) if is_huffman else text, at + size
