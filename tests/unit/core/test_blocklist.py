"""Blocks of users, API keys and ranges of addresses."""

from __future__ import annotations

import random
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from headgate.core.address import parse_address
from headgate.core.blocklist import BlockList
from headgate.core.request import Request
from headgate.core.units import SECOND
from headgate.errors import InvalidFields


def found(blocks: BlockList, now: int = 0, **request: Any) -> str | None:  # noqa: ANN401 (fields of a request)
    asked = Request(**request)
    block = blocks.find(asked, parse_address(asked.ip) if asked.ip else None, now * SECOND)
    return None if block is None else block.id


def networks(*written: str) -> BlockList:
    return BlockList([{"id": each, "network": each} for each in written])


def test_users_and_keys_are_blocked_by_name() -> None:
    """A block of a user concerns that user, one of a key that key, and neither the other."""
    blocks = BlockList([{"id": "1", "user": "a"}, {"id": "2", "api_key": "b", "reason": None, "until": None}])
    assert [found(blocks, user="a"), found(blocks, api_key="b")] == ["1", "2"]
    assert [found(blocks, user="b"), found(blocks, api_key="a"), found(blocks), found(blocks, user="")] == [None] * 4
    assert blocks.size == 2


@pytest.mark.parametrize(
    ("address", "block"),
    [
        ("10.0.0.0", "10.0.0.0/8"),
        ("10.255.255.255", "10.0.0.0/8"),
        ("9.255.255.255", None),
        ("11.0.0.0", None),
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.8", None),
        ("::ffff:10.1.2.3", "10.0.0.0/8"),
        ("64:ff9b::10.1.2.3", "10.0.0.0/8"),
        ("::ffff:198.51.100.1", "::ffff:198.51.100.0/120"),
        ("2001:db8::1", "2001:db8::/32"),
        ("2001:DB8:0:0::1", "2001:db8::/32"),
        ("[2001:db8::1]", "2001:db8::/32"),
        ("2001:db9::", None),
        ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", None),
        ("255.255.255.255", "255.255.255.255"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff::/16"),
        ("0.0.0.0", None),  # noqa: S104 (an address, not a binding)
        ("::", None),
    ],
)
def test_addresses_are_found_in_ranges(address: str, block: str | None) -> None:
    """Whatever way an address is written, it is in its range, up to both ends, and in no other."""
    ranges = ("10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::ffff:198.51.100.0/120", "255.255.255.255", "ffff::/16")
    assert found(networks(*ranges), ip=address) == block


def test_of_several_blocks_the_one_that_ends_last_counts() -> None:
    """So the time that a caller is told is the time at which nothing shuts it out any more."""
    data = [
        {"id": "user", "user": "u", "until": 20},
        {"id": "key", "api_key": "k", "until": 30},
        {"id": "wide", "network": "10.0.0.0/8", "until": 10},
        {"id": "narrow", "network": "10.1.0.0/16", "until": 40},
        {"id": "narrower", "network": "10.1.1.0/24", "until": 5},
        {"id": "ever", "network": "10.1.2.0/24"},
    ]
    blocks = BlockList(data)
    assert found(blocks, user="u", api_key="k") == "key"
    assert found(blocks, user="u", api_key="k", ip="10.9.9.9") == "key"
    assert found(blocks, user="u", ip="10.1.1.1") == "narrow"
    assert found(blocks, user="u", ip="10.1.2.1") == "ever"
    assert found(blocks, user="u", ip="10.2.0.0") == "user"
    assert [found(blocks, now, ip="10.0.0.1") for now in (0, 9, 10)] == ["wide", "wide", None]
    assert [found(blocks, now, ip="10.1.1.1") for now in (9, 39, 40)] == ["narrow", "narrow", None]
    assert [found(blocks, now, user="u") for now in (19, 20)] == ["user", None]


def test_two_blocks_of_the_same_are_one() -> None:
    """Of two for one subject, however it is written, the later end counts."""
    data = [
        {"id": "1", "user": "u", "until": 5},
        {"id": "2", "user": "u", "until": 9},
        {"id": "3", "user": "u", "until": 7},
        {"id": "4", "network": "10.0.0.1", "until": 5},
        {"id": "5", "network": "::ffff:10.0.0.1/128", "until": 9},
    ]
    assert found(BlockList(data), user="u") == "2"
    assert found(BlockList(data), ip="10.0.0.1") == "5"


@pytest.mark.untraced
@pytest.mark.parametrize("bits", [32, 128])
def test_ranges_answer_as_looking_at_each_would(bits: int) -> None:
    """Random ranges, one inside the other and side by side, against the plain way."""
    chance = random.Random(bits)
    kind = ip_network("0.0.0.0/0" if bits == 32 else "::/0")
    for _ in range(200):
        data = []
        for number in range(chance.randrange(1, 12)):
            length = chance.randrange(bits - 8, bits + 1)
            start = int(kind.network_address) + (chance.randrange(256) >> (bits - length) << (bits - length))
            start += 1 << (bits - 1)
            until = chance.choice([None, *range(1, 9)])
            data.append({"id": str(number), "network": f"{ip_address(start)}/{length}", "until": until})
        blocks = BlockList(data)
        for low in (*range(-1, 257, 7), chance.randrange(256), 256):
            address, now = ip_address((1 << (bits - 1)) + low), chance.randrange(9)
            ends = [
                each["until"] or 10**6
                for each in data
                if address in ip_network(str(each["network"])) and now < (each["until"] or 10**6)
            ]
            block = blocks.find(Request(), parse_address(str(address)), now * SECOND)
            end = None if block is None else (10**6 if block.until is None else block.until // SECOND)
            assert end == max(ends, default=None)


@pytest.mark.untraced
def test_a_hundred_thousand_ranges_are_ordinary() -> None:
    """Each is found among all the others."""
    data = [{"id": str(n), "network": f"10.{n >> 15}.{n >> 7 & 255}.{n & 127}"} for n in range(100_000)]
    blocks = BlockList(data)
    assert blocks.size == 100_000
    assert [found(blocks, ip=f"10.{n >> 15}.{n >> 7 & 255}.{n & 127}") for n in (0, 50_000, 99_999)] == [
        "0",
        "50000",
        "99999",
    ]
    assert found(blocks, ip="10.0.0.128") is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "expected a list of blocks"),
        (None, "expected a list of blocks"),
        (["u1"], "expected a mapping"),
        ([{"id": "1"}], "one user, one api_key or one network"),
        ([{"id": "1", "user": "a", "network": "10.0.0.1"}], "one user, one api_key or one network"),
        ([{"id": "1", "user": 7}], "expected a text"),
        ([{"id": "1", "network": "10.0.0.1/8"}], "write 10.0.0.0/8"),
        ([{"id": "1", "network": "somewhere"}], "not a range"),
        ([{"id": "1", "user": "a", "until": "tomorrow"}], "expected a number"),
        ([{"id": "1", "user": "a", "until": float("nan")}], "expected a number"),
        ([{"id": "1", "user": "a", "until": 1e300}], "expected a number"),
        ([{"id": "1", "user": "a", "till": 5}], "did you mean 'until'"),
    ],
)
def test_a_malformed_list_is_refused_as_a_whole(data: object, problem: str) -> None:
    """Everything that is wrong is said, so that the active list can stay."""
    with pytest.raises(InvalidFields, match=problem):
        BlockList(data)


def test_a_range_ends_where_the_next_one_begins() -> None:
    """Of two ranges side by side each address has the end of its own, also the first address of the second."""
    blocks = BlockList(
        [{"id": "lower", "network": "10.0.0.0/25"}, {"id": "upper", "network": "10.0.0.128/25", "until": 5}]
    )
    assert [found(blocks, 4, ip=ip) for ip in ("10.0.0.127", "10.0.0.128", "10.0.0.129")] == ["lower", "upper", "upper"]
    assert [found(blocks, 6, ip=ip) for ip in ("10.0.0.127", "10.0.0.128", "10.0.0.129")] == ["lower", None, None]
