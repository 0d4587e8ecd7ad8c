"""Hash slots: which part of a key decides where it lives, as Redis Cluster defines it."""

from __future__ import annotations

from binascii import crc_hqx
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.core.decision import Key

SLOTS: Final = 16_384


def tag_of(key: Key) -> str:
    """What stands between the first brace and the next closing one; the whole key if that is nothing."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            return key[start + 1 : end]
    return key


def slot_of(key: Key) -> int:
    """The slot of a key: CRC-16/XMODEM of its tag."""
    return crc_hqx(tag_of(key).encode(), 0) % SLOTS
