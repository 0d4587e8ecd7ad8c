"""Header blocks (HPACK, RFC 7541), decoded at a bounded cost.

The decoder of the package `hpack` bounds the size of the output, not the work: a block of 16 KiB can hold 16,384 table
size updates, or one integer of 16 KiB. Here each part has a limit. Huffman codes and the static table are the
package's.

Decoding a block takes longer than a whole decision, but a gateway sends the same few bytes again and again, which
refer to a table of earlier fields. While the table does not change, equal bytes mean equal fields: `HeaderReader`
caches them.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeAlias

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from headgate.protocols.http2.frames import CloseReason, ErrorCode, Http2Error

HeaderFields: TypeAlias = dict[str, str]
_Entry: TypeAlias = tuple[str, str, int]
"""Name, value, and size as HPACK counts it."""


class MalformedFields(HeaderFields):
    """Fields that no request can have (RFC 9113, sections 8.2 and 8.3): their stream has to be reset."""


def are_of_a_request(fields: HeaderFields) -> bool:
    """Whether fields can be those of a request, with all that it must have (RFC 9113, section 8.3.1)."""
    has_all = ":method" in fields and ":scheme" in fields and bool(fields.get(":path"))
    return has_all and not isinstance(fields, MalformedFields)


def are_trailers(fields: HeaderFields) -> bool:
    """Whether fields can stand after a message (RFC 9113, section 8.1)."""
    return not isinstance(fields, MalformedFields) and _PSEUDO.isdisjoint(fields)


_OF_CONNECTIONS: Final = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"})
_PSEUDO: Final = frozenset({":method", ":scheme", ":authority", ":path", ":protocol"})

_OVERHEAD: Final = 32
"""Bytes that HPACK adds to the size of each field (section 4.1)."""
_MAX_TABLE: Final = 4_096
_MAX_SIZE_UPDATES: Final = 2
"""At the beginning of a block; a third one would say nothing new (section 4.2)."""
_MAX_SHIFT: Final = 21
"""Of the last byte of an integer: no valid one is longer."""
_INDEXED, _WITH_INDEXING, _NEW_SIZE, _HUFFMAN, _MORE = 0x80, 0x40, 0x20, 0x80, 0x80
_BITS_7, _BITS_6, _BITS_5, _BITS_4 = 0x7F, 0x3F, 0x1F, 0x0F
_STATIC: Final = tuple(
    (name.decode(), value.decode(), _OVERHEAD + len(name) + len(value)) for name, value in HeaderTable.STATIC_TABLE
)
_MAX_CACHED: Final = 64
_MAX_CACHED_BLOCK: Final = 512
_MAX_CACHED_FIELDS: Final = 32
_MAX_CACHED_BYTES: Final = 65_536
"""Of all texts in the cache: one byte of a block can stand for 4 KiB."""


class HeaderLimits(NamedTuple):
    """What one header block may contain."""

    list_bytes: int = 16_384
    """All fields, each counted with 32 bytes more than its text (RFC 9113, section 6.5.2)."""
    fields: int = 128
    block_bytes: int = 16_384
    """The block as it arrives."""
    continuations: int = 64
    """CONTINUATION frames: empty ones would never make a block too long."""


DEFAULT_LIMITS: Final = HeaderLimits()


class HeaderReader:
    """Reads the header blocks of one connection, in their order, through a cache."""

    def __init__(self, limits: HeaderLimits = DEFAULT_LIMITS) -> None:
        """Start with an empty table."""
        self._decoder = HeaderDecoder(limits)
        self._version = 0
        self.cached: dict[bytes, HeaderFields] = {}
        """Fields of blocks that still mean the same as when they were read."""
        self._cached_bytes = 0
        self.work = 0
        """What the last block cost, in units of about 20 µs."""

    def read(self, block: bytes) -> HeaderFields:
        """Decode a block that is not cached. Fields are by name; of several of one name the last counts."""
        decoder = self._decoder
        fields = decoder.decode(block)
        self.work = 1 + (decoder.fields >> 4) + (len(block) >> 8)
        if decoder.version != self._version:
            self._version = decoder.version
            self._clear()
        elif len(block) <= _MAX_CACHED_BLOCK and decoder.fields <= _MAX_CACHED_FIELDS:
            self._cache(block, fields)
        return fields

    def _cache(self, block: bytes, fields: HeaderFields) -> None:
        size = len(block) + sum(map(len, fields.values()))
        if len(self.cached) >= _MAX_CACHED or self._cached_bytes + size > _MAX_CACHED_BYTES:
            self._clear()
        self.cached[block] = fields
        self._cached_bytes += size

    def _clear(self) -> None:
        self.cached.clear()
        self._cached_bytes = 0


class HeaderDecoder:
    """Decodes the header blocks of one connection, in their order."""

    def __init__(self, limits: HeaderLimits = DEFAULT_LIMITS) -> None:
        """Start with an empty table."""
        self.version = 0
        """Grows whenever the table changes."""
        self.fields = 0
        """How many fields the last block has."""
        self._limits = limits
        self._entries: deque[_Entry] = deque()
        self._size = 0
        self._max_size = _MAX_TABLE

    def decode(self, block: bytes) -> HeaderFields:
        """The fields of a block, by name; of several of one name the last counts."""
        try:
            return self._decode(block)
        except (IndexError, UnicodeDecodeError, HPACKError) as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR) from error

    def _decode(self, block: bytes) -> HeaderFields:
        found: HeaderFields = {}
        is_malformed = has_regular = False
        max_bytes, max_fields = self._limits.list_bytes, self._limits.fields
        at, end, size, count = self._read_size_updates(block), len(block), 0, 0
        while at < end:
            first = block[at]
            if first & _INDEXED:
                index, at = _integer(block, at, _BITS_7)
                entry = self._entry(index)
            else:
                mask = _BITS_6 if first & _WITH_INDEXING else _BITS_4
                if first & _NEW_SIZE and mask == _BITS_4:  # only at the beginning of a block
                    raise Http2Error(ErrorCode.COMPRESSION_ERROR)
                index, at = _integer(block, at, mask)
                entry, at = self._literal(block, at, index)
                if mask == _BITS_6:
                    self._add(entry)
            size += entry[2]
            count += 1
            if size > max_bytes or count > max_fields:
                figures = f"{count} fields, {size} bytes in one block"
                raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, CloseReason.HEADER_FIELDS, figures)
            name = entry[0]
            if name[:1] == ":":
                is_malformed |= has_regular or name not in _PSEUDO or name in found
            else:
                has_regular = True
                is_malformed |= not name or name in _OF_CONNECTIONS or name != name.lower()
            found[name] = entry[1]
        self.fields = count
        is_malformed |= found.get("te", "trailers") != "trailers"
        return MalformedFields(found) if is_malformed else found

    def _read_size_updates(self, block: bytes) -> int:
        """Apply the table sizes that a block begins with, and return where they end."""
        at, left = 0, _MAX_SIZE_UPDATES
        while at < len(block) and block[at] & (_INDEXED | _WITH_INDEXING | _NEW_SIZE) == _NEW_SIZE:
            size, at = _integer(block, at, _BITS_5)
            left -= 1
            if size > _MAX_TABLE or left < 0:
                raise Http2Error(ErrorCode.COMPRESSION_ERROR)
            self._max_size = size
            self.version += 1
            self._shrink(size)
        return at

    def _entry(self, index: int) -> _Entry:
        if not index:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR)
        return _STATIC[index - 1] if index <= len(_STATIC) else self._entries[index - len(_STATIC) - 1]

    def _literal(self, block: bytes, at: int, index: int) -> tuple[_Entry, int]:
        if index:
            name, of_entry, size = self._entry(index)
            size -= len(of_entry.encode())
        else:
            raw, at = _read_string(block, at)
            name, size = raw.decode(), _OVERHEAD + len(raw)
        raw, at = _read_string(block, at)
        return (name, raw.decode(), size + len(raw)), at

    def _add(self, entry: _Entry) -> None:
        self.version += 1
        self._shrink(self._max_size - entry[2])
        if entry[2] <= self._max_size:
            self._entries.appendleft(entry)
            self._size += entry[2]

    def _shrink(self, size: int) -> None:
        while self._entries and self._size > size:
            self._size -= self._entries.pop()[2]


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """An integer whose first byte has so many bits of it (section 5.1), and where it ends."""
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
    raise Http2Error(ErrorCode.COMPRESSION_ERROR)


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    """A string (section 5.2), and where it ends."""
    is_huffman = block[at] & _HUFFMAN
    size, at = _integer(block, at, _BITS_7)
    text = block[at : at + size]
    if len(text) != size:
        raise Http2Error(ErrorCode.COMPRESSION_ERROR)
    return decode_huffman(text) if is_huffman else text, at + size


def literal(name: bytes, value: bytes) -> bytes:
    """A field as a literal that does not enter the client's table (section 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """A string without Huffman codes, with its length before it (section 5.2)."""
    size = len(text)
    if size < _BITS_7:
        return bytes((size,)) + text
    size -= _BITS_7
    prefix = bytearray((_BITS_7,))
    while size > _BITS_7:
        prefix.append(size & _BITS_7 | _MORE)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + text
