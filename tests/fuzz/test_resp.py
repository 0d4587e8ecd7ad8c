"""RESP on random bytes: replies and commands mean what a plain reader says that they mean, however they are cut."""

from __future__ import annotations

import os
from random import Random

import hiredis
from tests.fuzz.resp_reference import command, damaged, made, pieces, read

from headgate.protocols.resp import NO_REPLY, ProtocolError, ReplyError, ReplyReader, RequestReader

_ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "4000"))
_SEED = int(os.environ.get("FUZZ_SEED", "16"))


def _plain(value: object) -> object:
    if isinstance(value, ReplyError):
        return "error", str(value).encode()
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _replies(parts: list[bytes]) -> tuple[list[object], bool]:
    """The replies in these bytes, and whether they end in something that is no RESP."""
    reader, found = ReplyReader(), []
    for part in parts:
        reader.feed(part)
        try:
            while (reply := reader.next()) is not NO_REPLY:
                found.append(_plain(reply))
        except ProtocolError:
            return found, True
    return found, False


def test_replies_mean_what_a_plain_reader_says() -> None:
    """Sound replies, cut anywhere, are read whole and in order, as the reference reads them."""
    random = Random(_SEED)
    for _ in range(_ROUNDS):
        values = [made(random) for _ in range(random.randrange(1, 4))]
        data = b"".join(each for each, _ in values)
        meant = [value for _, value in values]
        at = 0
        for value in meant:
            found, at = read(data, at)
            assert found == value
        assert _replies(pieces(random, data)) == (meant, False), data


def test_damaged_replies_are_read_the_same_however_they_are_cut() -> None:
    """Where the bytes are cut does not matter, and what is no RESP is a `ProtocolError` and nothing else."""
    random = Random(_SEED)
    for _ in range(_ROUNDS):
        data = damaged(random, b"".join(made(random)[0] for _ in range(3)))
        assert _replies([data]) == _replies(pieces(random, data)) == _replies([bytes((byte,)) for byte in data]), data


def _commands(parts: list[bytes]) -> tuple[list[bytes], bool]:
    reader, found = RequestReader(), []
    for part in parts:
        try:
            found += reader.feed(part)
        except ValueError:
            return found, True
    return found, False


def test_commands_are_cut_where_hiredis_cuts_them() -> None:
    """Commands that arrive in any pieces are given out whole; hiredis and the reference find the same words in them."""
    random = Random(_SEED)
    for _ in range(_ROUNDS):
        sent = [command(random) for _ in range(random.randrange(1, 4))]
        data = b"".join(each for each, _ in sent)
        assert _commands(pieces(random, data)) == ([each for each, _ in sent], False), data
        parser = hiredis.Reader()
        parser.feed(data)
        assert [parser.gets() for _ in sent] == [words for _, words in sent]


def test_damaged_commands_are_never_read_in_another_way() -> None:
    """What is given out as an array is one array of strings to hiredis and to the reference, with nothing left."""
    random = Random(_SEED)
    for _ in range(_ROUNDS):
        data = damaged(random, b"".join(command(random)[0] for _ in range(2)))
        found, _ = _commands(pieces(random, data))
        for each in found:
            if not each.startswith(b"*"):
                assert each.endswith(b"\r\n")
                continue
            parser = hiredis.Reader()
            parser.feed(each)
            words = parser.gets()
            assert isinstance(words, list), data
            assert all(isinstance(word, bytes) for word in words), data
            assert not parser.has_data(), data
            assert read(each) == (words, len(each)), data
        unread = _commands([data])[0]
        assert unread[: len(found)] == found[: len(unread)], data
