"""Header blocks (HPACK, RFC 7541): reading requests' and writing ours.

Reading one takes longer than the whole decision, but a gateway sends the same few bytes again and
again, which refer to a table of what it sent before. As long as the table stays as it is, equal
bytes mean the same, and are looked up.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from hpack import Decoder
from hpack.exceptions import HPACKError

from headgate.edge.grpc.frames import Broken, ErrorCode

HeaderFields: TypeAlias = dict[str, str]

MOST_BYTES: Final = 16_384
_MOST_REMEMBERED: Final = 64
_NEW_SIZE, _NEW_SIZE_MASK = 0x20, 0xE0
_SEVEN_BITS: Final = 0x7F


class HeaderBlocks:
    """The header blocks of one connection, in their order."""

    def __init__(self) -> None:
        """Begin with an empty table."""
        self._decoder = Decoder(MOST_BYTES)
        self._known: dict[bytes, HeaderFields] = {}

    def read(self, block: bytes) -> HeaderFields:
        """The fields of a block, by name; of several of one name the last."""
        known = self._known.get(block)
        if known is not None:
            return known
        newest = self._newest()
        try:
            fields = {str(name): str(value) for name, value in self._decoder.decode(block)}
        except (HPACKError, UnicodeDecodeError) as error:
            raise Broken(ErrorCode.COMPRESSION_ERROR) from error
        is_new_size = bool(block) and block[0] & _NEW_SIZE_MASK == _NEW_SIZE
        if is_new_size or self._newest() is not newest or len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        if not is_new_size and self._newest() is newest:
            self._known[block] = fields
        return fields

    def _newest(self) -> object:
        """What was last put into the table."""
        entries = self._decoder.header_table.dynamic_entries
        return entries[0] if entries else None


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
