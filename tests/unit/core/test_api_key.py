"""API keys and tokens: their form, their checksum, what is kept of them."""

from __future__ import annotations

import hashlib
import random

import pytest

from headgate.core.api_key import (
    foreign_name,
    hash_of,
    is_key_id,
    looks_like_api_key,
    looks_like_token,
    new_api_key,
    new_token,
    prefix_of,
    public_name,
)


def test_a_key_has_one_form() -> None:
    """``hg_``, 32 characters from the random bytes, 6 of checksum; the same bytes make the same key."""
    assert new_api_key(bytes(32)).startswith("hg_" + "0" * 32)
    key = new_api_key(bytes(range(32)))
    assert len(key) == 41
    assert key == new_api_key(bytes(range(32)))
    assert looks_like_api_key(key)
    assert not looks_like_token(key)
    token = new_token(bytes(range(32)))
    assert token.startswith("hgt_")
    assert looks_like_token(token)
    assert not looks_like_api_key(token)
    assert token[4:36] == key[3:35]


def test_a_key_is_made_from_enough_chance() -> None:
    """Too few random bytes would make a key that can be guessed."""
    with pytest.raises(ValueError, match="32 random bytes, not from 31"):
        new_api_key(bytes(31))


def test_keys_differ() -> None:
    """In every place, over all characters."""
    chance = random.Random(7)
    keys = [new_api_key(chance.randbytes(32)) for _ in range(5_000)]
    assert len(set(keys)) == len(keys)
    for place in range(3, 35):
        assert len({key[place] for key in keys}) == 62


def test_a_mistyped_key_is_seen_without_a_lookup() -> None:
    """One wrong character, two that changed places, one too many or too few."""
    key = new_api_key(random.Random(3).randbytes(32))
    for place in range(len(key)):
        wrong = "a" if key[place] != "a" else "b"
        assert not looks_like_api_key(key[:place] + wrong + key[place + 1 :])
        assert not looks_like_api_key(key[:place] + key[place + 1 :])
        swapped = key[:place] + key[place : place + 2][::-1] + key[place + 2 :]
        assert swapped == key or not looks_like_api_key(swapped)
    for text in ("", key + "a", f"{key}\n", f" {key}", key.upper(), "hg_" + "é" * 38, "\ud800", "\x00", "x" * 10_000):
        assert not looks_like_api_key(text)
        assert not looks_like_token(text)


def test_a_public_name_tells_nothing_of_a_key() -> None:
    """An id and a public name stand for themselves, other texts for their digest, malformed keys for nothing."""
    id_ = "0f0e0d0c-0b0a-4908-8706-050403020100"
    assert public_name(id_) == id_
    key = new_api_key(bytes(32))
    for text in (key, "sk_live_1", id_.upper(), "x" * 10_000, "\ud800", "日本"):
        name = public_name(text)
        assert name == f"sha256:{hash_of(text).hex()[:32]}"
        assert public_name(name) == name
    assert public_name("sk_live_1 ") == public_name("sk_live_1")
    name = public_name("sk_live_1") or ""
    assert public_name(foreign_name(name, has_ids=False)) not in {name, None}, "a caller cannot state another's name"
    assert foreign_name(id_, has_ids=False) == id_
    assert public_name(foreign_name(id_, has_ids=True)) == f"sha256:{hash_of(id_).hex()[:32]}"
    assert foreign_name("sk_live_1", has_ids=True) == "sk_live_1"
    for text in ("", " ", f"{key} ", key[:-1], key.upper(), new_token(bytes(32)), "HG_x", "hg_" + "x" * 10_000):
        assert public_name(text) is None


def test_what_is_kept_of_a_key() -> None:
    """Its SHA-256, and ten characters to know it by; any text that a caller may present has a hash."""
    key = new_api_key(bytes(32))
    assert hash_of(key) == hashlib.sha256(key.encode()).digest()
    assert prefix_of(key) == key[:10]
    assert len(hash_of("\ud800")) == 32


def test_an_id_of_a_key_has_a_form() -> None:
    """It is no secret; a key is none, nor is an id with something around it."""
    known = "0b4f3c1e-8f0a-4c55-9d6e-3a1f2b7c8d90"
    assert is_key_id(known)
    assert not is_key_id(new_api_key(bytes(32)))
    assert not is_key_id(f" {known}")
    assert not is_key_id(known.upper())
