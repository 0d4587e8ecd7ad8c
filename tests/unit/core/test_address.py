"""Addresses: every spelling of one caller leads to one counter."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.address import parse_address, parse_network, parse_range
from headgate.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("0.0.0.0", "0.0.0.0"),  # noqa: S104 (an address, not a binding)
        ("255.255.255.255", "255.255.255.255"),
        (" 203.0.113.9\n", "203.0.113.9"),
        # IPv6 is counted by /64, however it is written
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:DB8::1", "2001:db8::/64"),
        ("2001:0db8:0000:0000:ffff:ffff:ffff:ffff", "2001:db8::/64"),
        ("2001:db8:0:1::", "2001:db8:0:1::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        (" [2001:db8::1] ", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("[fe80::1%25eth0]", "fe80::/64"),
        ("::1", "::/64"),
        ("::", "::/64"),
        # an IPv4 tail is only a spelling of the last bits
        ("2001:db8::1.2.3.4", "2001:db8::/64"),
        ("::1.2.3.4", "::/64"),
        # IPv4 in another coat is IPv4
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("::FFFF:1.2.3.4", "1.2.3.4"),
        ("::ffff:102:304", "1.2.3.4"),
        ("0:0:0:0:0:ffff:0102:0304", "1.2.3.4"),
        ("[::ffff:1.2.3.4]", "1.2.3.4"),
        ("::ffff:0:1.2.3.4", "1.2.3.4"),
        ("64:ff9b::1.2.3.4", "1.2.3.4"),
        ("64:ff9b::102:304", "1.2.3.4"),
        # next to those prefixes is plain IPv6
        ("::fffe:1.2.3.4", "::/64"),
        ("64:ff9b:1::102:304", "64:ff9b:1::/64"),
        ("64:ff9a::102:304", "64:ff9a::/64"),
        # tunnels are counted for the IPv4 address at their end: 6to4 has it in front, Teredo inverted at the end
        ("2002:102:304::1", "1.2.3.4"),
        ("2002:102:304:ffff::2", "1.2.3.4"),
        ("2001:0:4136:e378:8000:63bf:fefd:fcfb", "1.2.3.4"),
        ("2001:0:1:1:0:1:fefd:fcfb", "1.2.3.4"),
        ("2001::102:304", "254.253.252.251"),
        # next to those too is plain IPv6
        ("2001:1::1", "2001:1::/64"),
        ("2003:102:304::1", "2003:102:304::/64"),
    ],
)
def test_what_an_address_is_counted_as(text: str, counted: str) -> None:
    """All spellings of an address are counted as one: IPv4 as it is, IPv6 by its /64, wrapped IPv4 as IPv4."""
    assert parse_address(text).text == counted


def test_wrapped_ipv4_is_matched_as_ipv4_and_a_tunnel_as_ipv6() -> None:
    """Rules for IPv4 ranges concern callers whose IPv4 address is only written as IPv6.

    Not those behind a tunnel: an inner address such as 10.0.0.1 is the caller's to choose, and would pass an `allow`.
    """
    for text in ("1.2.3.4", "::ffff:1.2.3.4", "::ffff:0:102:304", "64:ff9b::1.2.3.4"):
        assert parse_address(text)[:2] == (4, 0x01020304)
    for text in ("2002:102:304::1", "2001:0:4136:e378:8000:63bf:fefd:fcfb"):
        assert parse_address(text)[:2] == (6, int(IPv6Address(text)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "localhost",
        "unknown",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.",
        ".1.2.3",
        "1..2.3",
        "256.1.1.1",
        "1.1.1.1111",
        "01.2.3.4",
        "1.2.3.04",
        "00.0.0.0",
        "0x7f.0.0.1",
        "127.1",
        "2130706433",
        "-1.2.3.4",
        "+1.2.3.4",
        "1.2.3.4 5",
        "1.2.3.4:80",
        "1.2.3.4/32",
        "1.2.3.4%eth0",
        "[1.2.3.4]",
        "1.2.3.4, 5.6.7.8",
        "\u0661.2.3.4",
        "\uff11.2.3.4",
        "1\u30022.3.4",
        "1.2.3.4\x00",
        "::ffff:01.2.3.4",
        "::ffff:256.1.1.1",
        ":",
        ":::",
        "1::2::3",
        "2001:db8::12345",
        "2001:db8::g",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7",
        "[::1",
        "::1]",
        "[[::1]]",
        "[]",
        "[::1]:80",
        "2001:db8::/64",
        "\udcff",
        "1" * 65,
        "." * 1_000_000,
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_refuses_what_is_no_address(text: str) -> None:
    """What is no address is refused with a short sentence, not guessed at."""
    with pytest.raises(InvalidRequest, match="is not an IPv4 or IPv6 address") as caught:
        parse_address(text)
    assert len(str(caught.value)) < 150
    assert str(caught.value).isprintable()


@given(st.ip_addresses(v=4))
def test_every_ipv4_address_has_one_counter(address: IPv4Address) -> None:
    """An IPv4 address is the same caller in all its plain and wrapped spellings."""
    number = int(address)
    wrapped = IPv6Address(0xFFFF << 32 | number)
    nat64 = IPv6Address(0x64_FF9B << 96 | number)
    spellings = (str(address), str(wrapped), wrapped.exploded, f"::ffff:{address}", str(nat64).upper())
    assert {parse_address(text) for text in spellings} == {(4, number, str(address))}


@given(st.ip_addresses(v=6), st.integers(0, 2**64 - 1))
def test_every_ipv6_address_of_one_subnet_has_one_counter(address: IPv6Address, host: int) -> None:
    """Changing the last 64 bits, the case or the compression gives no caller a second counter."""
    number = int(address)
    sibling = IPv6Address(number >> 64 << 64 | host)
    parsed = parse_address(str(address))
    assert parsed == parse_address(address.exploded.upper()) == parse_address(f"[{address}]")
    if parsed.text.endswith("/64") and parse_address(str(sibling)).text.endswith("/64"):
        assert parse_address(str(sibling)).text == parsed.text


@given(st.text() | st.text("0123456789abcdef.:%[]/ x", max_size=45))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """No text makes the reading of addresses fail other than by a refusal, and what is read is canonical."""
    try:
        address = parse_address(text)
    except InvalidRequest:
        return
    assert parse_address(address.text.removesuffix("/64")).text == address.text


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        (" 10.0.0.0/8 ", "10.0.0.0/8"),
        ("10.0.0.0/255.0.0.0", "10.0.0.0/8"),
        ("203.0.113.9", "203.0.113.9/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8::/32", "2001:db8::/32"),
        ("::/0", "::/0"),
        ("::1", "::1/128"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:1.2.3.4", "1.2.3.4/32"),
        ("64:ff9b::10.0.0.0/104", "10.0.0.0/8"),
        ("2002:102:304::/48", "2002:102:304::/48"),
    ],
)
def test_reads_ranges(text: str, network: str) -> None:
    """A range is an address with a prefix, or one address; wrapped IPv4 ranges are IPv4 ranges."""
    assert parse_network(text) == ip_network(network)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is not a range of addresses; write for example 10.0.0.0/8"),
        ("10.0.0.0/33", "'10.0.0.0/33' is not a range"),
        ("10.0.0.0/-1", "is not a range"),
        ("10.0.0.0/", "is not a range"),
        ("10.0.0/8", "is not a range"),
        ("010.0.0.0/8", "is not a range"),
        ("10.0.0.0/8/8", "is not a range"),
        ("10.0.0.0-10.0.0.255", "is not a range"),
        ("::/129", "is not a range"),
        ("fe80::%eth0/64", "is not a range"),
        ("everyone", "is not a range"),
        ("10.0.0.1/8", "'10.0.0.1/8' is not the start of its range; write 10.0.0.0/8"),
        ("2001:db8::1/32", "'2001:db8::1/32' is not the start of its range; write 2001:db8::/32"),
        ("::ffff:10.0.0.1/104", "is not the start of its range; write ::ffff:"),
        ("::ffff:0:0/96", "would stand for all IPv4 addresses; write 0.0.0.0/0 if you mean them"),
        ("64:ff9b::/96", "would stand for all IPv4 addresses"),
        ("1" * 100_000, "is not a range"),
    ],
    ids=lambda text: text[:40],
)
def test_refuses_what_is_no_range(text: str, sentence: str) -> None:
    """A malformed range is refused with a sentence, where possible with the right spelling in it."""
    with pytest.raises(ValueError, match=r"range|IPv4") as caught:
        parse_network(text)
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 200


RANGES = [
    *("10.0.0.0/8", "0.0.0.0/0", "192.0.2.7", "192.0.2.7/32", "::/0", "2001:db8::/32", "2001:db8::1", "::1/128"),
    *(
        "::ffff:10.0.0.0/104",
        "::ffff:10.0.0.1",
        "64:ff9b::1.2.3.4/128",
        "::ffff:0:0/95",
        " 10.0.0.0/8 ",
        "10.0.0.0/255.0.0.0",
    ),
    *(
        "::ffff:0:0/96",
        "10.0.0.1/8",
        "2001:db8::1/32",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.0.0.0/8x",
    ),
    *(
        "10.0.0",
        "1.2.3.4.5",
        "010.0.0.0/8",
        "fe80::1%eth0",
        "fe80::%1/64",
        "[::1]",
        "",
        "/8",
        ":",
        "x",
        "1" * 100,
        "10.0.0.0/\u0668",
    ),
]


@pytest.mark.parametrize("text", RANGES)
def test_the_quick_way_reads_ranges_as_the_other_does(text: str) -> None:
    """`parse_range` takes what `parse_network` takes, means the same, and refuses the rest with the same words."""
    try:
        network = parse_network(text)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            parse_range(text)
        return
    bounds = int(network.network_address), int(network.broadcast_address)
    assert parse_range(text) == (network.version, *bounds)
