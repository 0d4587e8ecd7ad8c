"""Header blocks (HPACK, RFC 7541): reading requests' and writing ours.

Reading one takes longer than the whole decision, but a gateway sends the same few bytes again and
again, which refer to a table of what it sent before. As long as the table stays as it is, equal
bytes mean the same, and are looked up.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from headgate.protocols.http2.hpack import HeaderDecoder

HeaderFields: TypeAlias = dict[str, str]

MAX_BLOCK: Final = 16_384
"""Of a block as it comes."""
_MAX_REMEMBERED: Final = 64
_LONGEST_REMEMBERED: Final = 512
_MOST_FIELDS_REMEMBERED: Final = 32
_MAX_BYTES_REMEMBERED: Final = 65_536
"""Of all texts: one byte of a block can stand for 4 KiB."""
_SEVEN_BITS: Final = 0x7F


class HeaderBlocks:
    """The header blocks of one connection, in their order."""

    def __init__(self) -> None:
        """Begin with an empty table."""
        self._decoder = HeaderDecoder()
        self._version = 0
        self.known: dict[bytes, HeaderFields] = {}
        """The fields of blocks that mean the same as when they were read."""
        self._remembered = 0
        self.work = 0
        """What the block read last has taken, in units of about 20 µs."""

    def read(self, block: bytes) -> HeaderFields:
        """The fields of a block that is not known, by name; of several of one name the last."""
        decoder = self._decoder
        fields = decoder.decode(block)
        self.work = 1 + (decoder.fields >> 4) + (len(block) >> 8)
        if decoder.version != self._version:
            self._version = decoder.version
            self._forget()
        elif len(block) <= _LONGEST_REMEMBERED and decoder.fields <= _MOST_FIELDS_REMEMBERED:
            self._remember(block, fields)
        return fields

    def _remember(self, block: bytes, fields: HeaderFields) -> None:
        size = len(block) + sum(map(len, fields.values()))
        if len(self.known) >= _MAX_REMEMBERED or self._remembered + size > _MAX_BYTES_REMEMBERED:
            self._forget()
        self.known[block] = fields
        self._remembered += size

    def _forget(self) -> None:
        self.known.clear()
        self._remembered = 0


def literal(name: bytes, value: bytes) -> bytes:
    """A field that stands for itself and leaves the other end's table alone (section 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """A text as it is, with its length before it (section 5.2)."""
    size = len(text)
    if size < _SEVEN_BITS:
        return bytes((size,)) + text
    size -= _SEVEN_BITS
    prefix = bytearray((_SEVEN_BITS,))
    while size > _SEVEN_BITS:
        prefix.append(size & _SEVEN_BITS | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + text
