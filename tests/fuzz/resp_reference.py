"""RESP as plainly as it can be read: the reference for replies and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

INCOMPLETE: Final = object()


def read(data: bytes, at: int = 0) -> tuple[object, int]:
    """The value that begins at `at`, and where it ends; `INCOMPLETE` if there is more to come."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return INCOMPLETE, at
    kind, line, at = data[at : at + 1], data[at + 1 : end], end + 2
    match kind:
        case b"+":
            return line, at
        case b"-":
            return ("error", line), at
        case b":":
            return int(line), at
        case b"$":
            return _string(data, int(line), at)
        case _:
            assert kind == b"*"
            return _array(data, int(line), at)


def _string(data: bytes, size: int, at: int) -> tuple[object, int]:
    if size < 0:
        return None, at
    end = at + size
    return (data[at:end], end + 2) if len(data) >= end + 2 else (INCOMPLETE, at)  # Redis skips any two bytes here


def _array(data: bytes, size: int, at: int) -> tuple[object, int]:
    items = []
    for _ in range(size):
        item, at = read(data, at)
        if item is INCOMPLETE:
            return INCOMPLETE, at
        items.append(item)
    return (None if size < 0 else items), at


def made(random: Random, depth: int = 0) -> tuple[bytes, object]:
    """A random value of RESP 2: its bytes, and what they mean."""
    match random.randrange(6 if depth < 3 else 5):
        case 0:
            line = bytes(random.choices(b"abc -+:$*", k=random.randrange(6)))
            return b"+%b\r\n" % line, line
        case 1:
            return b"-ERR %d\r\n" % depth, ("error", b"ERR %d" % depth)
        case 2:
            number = random.choice((0, 1, -1, 2**63 - 1, -(2**63), random.randrange(10**6)))
            return b":%d\r\n" % number, number
        case 3:
            text = bytes(random.choices(b"\r\n$*a\x00\xff", k=random.randrange(20)))
            return b"$%d\r\n%b\r\n" % (len(text), text), text
        case 4:
            return random.choice(((b"$-1\r\n", None), (b"*-1\r\n", None)))
        case _:
            parts = [made(random, depth + 1) for _ in range(random.randrange(4))]
            return b"*%d\r\n" % len(parts) + b"".join(data for data, _ in parts), [value for _, value in parts]


def command(random: Random) -> tuple[bytes, list[bytes]]:
    """A random command: its bytes and its words."""
    words = [bytes(random.choices(b"\r\n$*ab\x00", k=random.randrange(8))) for _ in range(random.randrange(1, 4))]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words), words


def pieces(random: Random, data: bytes) -> list[bytes]:
    """The same bytes, cut at random places."""
    cuts = sorted(random.choices(range(len(data) + 1), k=random.randrange(6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def damaged(random: Random, data: bytes) -> bytes:
    """Bytes with one changed, missing or added."""
    at = random.randrange(len(data))
    byte = bytes((random.choice(b"*$:+-0129\r\n\x00"),))
    return random.choice((data[:at] + byte + data[at + 1 :], data[:at] + data[at + 1 :], data[:at] + byte + data[at:]))
