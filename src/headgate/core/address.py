"""Internet addresses: one spelling each, so that no caller has two counters.

Everything is decided on bits, never on spelling: ``::ffff:1.2.3.4`` and ``::FFFF:102:304``
are one caller, and ``2001:db8::1.2.3.4`` is no IPv4 address.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

from headgate.errors import InvalidRequest, short_repr

Network: TypeAlias = IPv4Network | IPv6Network

_IPV4_BITS: Final = 32
_IPV4_MASK: Final = 0xFFFF_FFFF
_IPV6_BITS: Final = 128
_COUNTED_BITS: Final = 64
# ::ffff:0:0/96 (mapped), ::ffff:0:0:0/96 (translated), 64:ff9b::/96 (NAT64): only another way to write
# an IPv4 address. By /64 all their callers would share one counter, and one could lock out the rest.
_WRAPPING_PREFIXES: Final = frozenset({0xFFFF, 0xFFFF_0000, 0x64_FF9B << 64})
_6TO4, _6TO4_SHIFT, _6TO4_END = 0x2002, 112, 80
_TEREDO, _TEREDO_SHIFT = 0x2001_0000, 96
_OCTETS: Final = 4
_MAX_OCTET: Final = 255
_MAX_TEXT: Final = 64
_MAX_REMEMBERED: Final = 16_384
"""Addresses; they take up to 6 MB. With more callers than that at a time an address is parsed again."""


class Address(NamedTuple):
    """An address as a number, and the text its counters are kept under."""

    version: int
    number: int
    text: str
    """IPv4 as it is; IPv6 as its /64, which belongs to one subscriber as a whole, or as the end of its tunnel."""


@lru_cache(_MAX_REMEMBERED)  # for each request several ask, and IPv6 takes six microseconds
def parse_address(text: str) -> Address:
    """Read an address; IPv6 forms that only wrap an IPv4 address are that address."""
    octets = text.split(".", _OCTETS)
    if len(octets) == _OCTETS and (number := _ipv4(octets)) is not None:
        return Address(4, number, text)
    try:
        parsed = _parsed(text)
    except ValueError:
        msg = f"ip {short_repr(text)} is not an IPv4 or IPv6 address"
        raise InvalidRequest(msg) from None
    number = int(parsed)
    if isinstance(parsed, IPv6Address):
        if number >> _IPV4_BITS not in _WRAPPING_PREFIXES:
            return Address(6, number, _counted_as(number))
        number &= _IPV4_MASK
    return Address(4, number, str(IPv4Address(number)))


def _parsed(text: str) -> IPv4Address | IPv6Address:
    """An address with what may stand around it: blanks; for IPv6 also brackets and a zone (``[fe80::1%eth0]``)."""
    if len(text) > _MAX_TEXT:
        raise ValueError
    plain = text.strip()
    if plain.startswith("[") and plain.endswith("]"):
        return IPv6Address(plain[1:-1].partition("%")[0])
    return ip_address(plain.partition("%")[0] if ":" in plain else plain)


def _counted_as(number: int) -> str:
    """Whom an IPv6 address is counted for: the IPv4 address at the end of a tunnel, else the /64 it is in.

    A subscriber with 6to4 (RFC 3056) owns 65,536 networks of /64, and all Teredo clients (RFC 4380) of one server
    share a single one. Ranges do not see the inner address: the caller chooses it, and 10.0.0.1 may be allowed.
    """
    if number >> _6TO4_SHIFT == _6TO4:
        return str(IPv4Address(number >> _6TO4_END & _IPV4_MASK))
    if number >> _TEREDO_SHIFT == _TEREDO:
        return str(IPv4Address(~number & _IPV4_MASK))
    group = number >> (_IPV6_BITS - _COUNTED_BITS) << (_IPV6_BITS - _COUNTED_BITS)
    return f"{IPv6Address(group)}/{_COUNTED_BITS}"


def _ipv4(octets: list[str]) -> int | None:
    """The number of a plainly written IPv4 address; None for anything else."""
    number = 0
    for octet in octets:
        if not (octet.isascii() and octet.isdigit()) or len(octet) > 3 or (octet[0] == "0" and octet != "0"):  # noqa: PLR2004 (digits)
            return None
        value = int(octet)
        if value > _MAX_OCTET:
            return None
        number = number << 8 | value
    return number


def parse_network(text: str) -> Network:
    """Read a range such as ``10.0.0.0/8``; one address is a range of its own. Raises `ValueError` with a sentence."""
    plain = text.strip()
    try:
        network = ip_network(_without_zone(plain), strict=False)
    except ValueError:
        msg = f"{short_repr(text)} is not a range of addresses; write for example 10.0.0.0/8 or 2001:db8::/32"
        raise ValueError(msg) from None
    if ip_address(plain.partition("/")[0]) != network.network_address:
        msg = f"{short_repr(text)} is not the start of its range; write {network}"
        raise ValueError(msg)
    number, wrapping = int(network.network_address), _IPV6_BITS - _IPV4_BITS
    if network.version == 4 or network.prefixlen < wrapping or number >> _IPV4_BITS not in _WRAPPING_PREFIXES:  # noqa: PLR2004 (IPv4)
        return network
    if network.prefixlen == wrapping:
        msg = f"{short_repr(text)} would stand for all IPv4 addresses; write 0.0.0.0/0 if you mean them"
        raise ValueError(msg)
    return IPv4Network((number & _IPV4_MASK, network.prefixlen - wrapping))


def parse_range(text: str) -> tuple[int, int, int]:
    """What `parse_network` reads, as version, first and last address; in a quarter of the time, for very many."""
    host, slash, length = text.partition("/")
    version, bits = 4, _IPV4_BITS
    if ":" in host:
        version, bits = 6, _IPV6_BITS
        try:
            number = int(IPv6Address(host))
        except ValueError:
            number = None
    else:
        number = _ipv4(host.split(".")) if host.count(".") == _OCTETS - 1 else None
    if number is not None and len(text) <= _MAX_TEXT and number >> _IPV4_BITS not in _WRAPPING_PREFIXES:
        fixed = bits if not slash else int(length) if length.isascii() and length.isdigit() else -1
        others = (1 << max(0, bits - fixed)) - 1
        if 0 <= fixed <= bits and not number & others and "%" not in host:
            return version, number, number | others
    network = parse_network(text)
    return network.version, int(network.network_address), int(network.broadcast_address)


def _without_zone(text: str) -> str:
    """The text itself, if it can be a range: its length is that of one, and it names no network interface."""
    if len(text) > _MAX_TEXT or "%" in text:
        raise ValueError
    return text
