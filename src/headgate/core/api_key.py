"""API keys and admin tokens: how they are written, recognised and kept.

``hg_`` (a token: ``hgt_``), 32 characters drawn at random, 6 characters of checksum. The checksum
tells a mistyped key from an unknown one without a look-up, and lets scanners of leaked secrets be
sure of what they have found. Only the hash is ever stored: 190 random bits need no slow one.

Callers state keys of other makers too, and names of their own for keys. `public_name` is what stands for
any of them in the names of counters, in events and in logs.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

RANDOM_BYTES: Final = 32
"""How many random bytes a new key is made from."""
_KEY: Final = "hg_"
_TOKEN: Final = "hgt_"  # noqa: S105 (how one begins, not a secret)
_DIGITS: Final = digits + ascii_uppercase + ascii_lowercase
_DRAWN: Final = 32
_CHECKSUM: Final = 6
_FORM: Final = re.compile(rf"(?P<drawn>(?P<kind>hgt?_)[0-9A-Za-z]{{{_DRAWN}}})(?P<checksum>[0-9A-Za-z]{{{_CHECKSUM}}})")
_RECOGNISED: Final = 10
_OURS: Final = (_KEY, _TOKEN)
_ID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DIGEST: Final = "sha256:"
_DIGITS_OF_DIGEST: Final = 32
_DIGEST_NAME: Final = re.compile(rf"{_DIGEST}[0-9a-f]{{{_DIGITS_OF_DIGEST}}}")
_PUBLIC: Final = re.compile(rf"{_ID}|{_DIGEST_NAME.pattern}")
_MAX_REMEMBERED: Final = 1_024
_MAX_LENGTH: Final = 256
"""Of a text that is remembered."""


def new_api_key(random: bytes) -> str:
    """A key made from `RANDOM_BYTES` unpredictable bytes."""
    return _new(_KEY, random)


def new_token(random: bytes) -> str:
    """An admin token, made in the same way."""
    return _new(_TOKEN, random)


def looks_like_api_key(text: str) -> bool:
    """Whether this can be a key: its form is right, and so is its checksum."""
    return _looks_like(_KEY, text)


def looks_like_token(text: str) -> bool:
    """Whether this can be an admin token."""
    return _looks_like(_TOKEN, text)


def is_meant_as_ours(text: str) -> bool:
    """Whether this has the prefix of what headgate issues, valid or not."""
    return text.strip().lower().startswith(_OURS)


def is_malformed(text: str) -> bool:
    """Whether this looks like a key of ours and cannot be one: mistyped, truncated, with a blank, or an admin token."""
    return is_meant_as_ours(text) and not looks_like_api_key(text)


def is_key_id(text: str) -> bool:
    """Whether this has the form of the id of a key, which is no secret."""
    return re.fullmatch(_ID, text) is not None


def public_name(text: str) -> str | None:
    """What stands for a key where others can read it: its id, or else ``sha256:`` and half of its digest.

    None for what is malformed, or nothing but blanks: it has no name, and so no counter of its own. A public name
    stands for itself, so that what was kept of a request can be decided again. Blanks around a key mean nothing.
    """
    return _remembered(text) if len(text) <= _MAX_LENGTH else _public_name(text)


def foreign_name(text: str, *, has_ids: bool) -> str:
    """A text that a caller states in place of a key, so that it is not taken for the public name of another key.

    Those names can be read in events and key names. Where there are no records no key has an id (`has_ids`).
    """
    pattern = _PUBLIC if has_ids else _DIGEST_NAME
    return digest_name(text) if pattern.fullmatch(text.strip()) else text


def digest_name(text: str) -> str:
    """``sha256:`` and half of the digest."""
    return f"{_DIGEST}{hash_of(text.strip()).hex()[:_DIGITS_OF_DIGEST]}"


def _public_name(text: str) -> str | None:
    if is_malformed(text):
        return None
    text = text.strip()
    if not text or _PUBLIC.fullmatch(text):
        return text or None
    return digest_name(text)


_remembered: Final = lru_cache(_MAX_REMEMBERED)(_public_name)  # a digest takes ten times as long


def hash_of(text: str) -> bytes:
    """What is stored of a key, and what it is looked up by."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def prefix_of(text: str) -> str:
    """The part of a key that may be shown, so that its owner recognises it."""
    return text[:_RECOGNISED]


def _new(kind: str, random: bytes) -> str:
    if len(random) < RANDOM_BYTES:
        msg = f"a key is made from {RANDOM_BYTES} random bytes, not from {len(random)}"
        raise ValueError(msg)
    # 256 random bits are reduced to 190: with so many to spare, all characters are practically equally likely.
    drawn = kind + _in_base62(int.from_bytes(random), _DRAWN)
    return drawn + _checksum(drawn)


def _looks_like(kind: str, text: str) -> bool:
    found = _FORM.fullmatch(text)
    return found is not None and found["kind"] == kind and found["checksum"] == _checksum(found["drawn"])


def _checksum(text: str) -> str:
    return _in_base62(zlib.crc32(text.encode()), _CHECKSUM)


def _in_base62(number: int, length: int) -> str:
    """The last `length` digits of a number."""
    written = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        written.append(_DIGITS[digit])
    return "".join(reversed(written))
