"""Internet addresses: one spelling each, so that no caller has two counters."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

from headgate.errors import InvalidRequest

Network: TypeAlias = IPv4Network | IPv6Network

_IPV4_BITS: Final = 32
_IPV4_MASK: Final = 0xFFFF_FFFF
_COUNTED_BITS: Final = 64
# ::ffff:0:0/96 (IPv4-mapped) and 64:ff9b::/96 (NAT64): by /64 all their callers would share one counter.
_WRAPPING_PREFIXES: Final = frozenset({0xFFFF, 0x64_FF9B << 64})
_OCTETS: Final = 4
_LARGEST_OCTET: Final = 255
_LONGEST_TEXT: Final = 64


class Address(NamedTuple):
    """An address as a number, and the text its counters are kept under."""

    version: int
    number: int
    text: str
    """IPv4 as it is; IPv6 as its /64, because one subscriber owns that many addresses."""


def parse_address(text: str) -> Address:
    """Read an address; IPv6 forms that only wrap an IPv4 address are that address."""
    octets = text.split(".")
    if len(octets) == _OCTETS and (number := _ipv4(octets)) is not None:
        return Address(4, number, text)
    if len(text) > _LONGEST_TEXT:
        msg = "ip is too long to be an address"
        raise InvalidRequest(msg)
    try:
        parsed = ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        msg = f"ip {text!r} is not an IPv4 or IPv6 address"
        raise InvalidRequest(msg) from None
    if isinstance(parsed, IPv6Address):
        # Decided on bits, never on spelling: ::ffff:1.2.3.4 and ::ffff:102:304 are the same caller.
        number = int(parsed)
        wrapped = IPv4Address(number & _IPV4_MASK) if number >> _IPV4_BITS in _WRAPPING_PREFIXES else None
        if wrapped is None:
            group = number >> (128 - _COUNTED_BITS) << (128 - _COUNTED_BITS)
            return Address(6, number, f"{IPv6Address(group)}/{_COUNTED_BITS}")
        parsed = wrapped
    return Address(4, int(parsed), str(parsed))


def _ipv4(octets: list[str]) -> int | None:
    """The number of a plainly written IPv4 address; None for anything else."""
    number = 0
    for octet in octets:
        if not (octet.isascii() and octet.isdigit()) or len(octet) > 3 or (octet[0] == "0" and octet != "0"):  # noqa: PLR2004 (digits)
            return None
        value = int(octet)
        if value > _LARGEST_OCTET:
            return None
        number = number << 8 | value
    return number


def parse_network(text: str) -> Network:
    """Read a range such as ``10.0.0.0/8``; one address is a range of its own."""
    network = ip_network(text.strip())
    if isinstance(network, IPv6Network):
        wrapped = network.network_address.ipv4_mapped
        if wrapped is not None and network.prefixlen >= 128 - _IPV4_BITS:
            return IPv4Network((wrapped, network.prefixlen - (128 - _IPV4_BITS)))
    return network
