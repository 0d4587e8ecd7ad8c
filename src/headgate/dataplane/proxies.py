"""The caller's address behind proxies.

A forwarding header is only as trustworthy as the hop that wrote it. So the hops are followed backwards
from the connection itself, as long as each is a trusted proxy; what is beyond the first untrusted hop
may be invented, and is ignored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.core.address import parse_address, parse_network
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.core.address import Address

_MAX_HOPS: Final = 32
_MAX_HEADER: Final = 8_192
_WITH_PORT: Final = re.compile(r"(?:\[(?P<six>[^]]*)]|(?P<four>[^:\[\]]*))(?::[0-9]{1,5})?")
# RFC 7239, section 4: elements with commas between them, pairs with semicolons between those.
_PAIR: Final = re.compile(r"""\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([^\s"(),/:;<=>?@\[\\\]{}]+|"(?:[^"\\]|\\.)*")\s*""")


class Proxies:
    """The proxies that are trusted."""

    def __init__(self, trusted: Iterable[object] = ()) -> None:
        """`trusted` are networks, or texts such as ``10.0.0.0/8``."""
        networks = [parse_network(str(each)) for each in trusted]
        self._trusted = [(each.version, int(each.network_address), int(each.broadcast_address)) for each in networks]

    def address(self, peer: str | None, forwarded_for: str | None, forwarded: str | None) -> str | None:
        """The address of the caller: of the first hop, from here, that is not trusted.

        `peer` is the other end of the connection, with or without a port, the others are the headers
        `X-Forwarded-For` and `Forwarded`. If both are there, the former counts: it is the one that
        proxies write, while the other may have come from the caller and been passed on. A header
        that cannot be followed is ignored.
        """
        nearest = _hop(peer or "")
        if nearest is None:
            return None
        if self._trusts(nearest[1]):
            hops = _listed(forwarded_for) if forwarded_for is not None else _elements(forwarded or "")
            for hop in hops:
                read = None if hop is None else _hop(hop)
                if read is None:
                    return nearest[0]
                if not self._trusts(read[1]):
                    return read[0]
                furthest = read[0]
            if hops:
                return furthest
        return nearest[0]

    def _trusts(self, address: Address) -> bool:
        return any(
            version == address.version and first <= address.number <= last for version, first, last in self._trusted
        )


def _hop(text: str) -> tuple[str, Address] | None:
    """An address with or without a port, as text and as a number."""
    found = _WITH_PORT.fullmatch(text)
    plain = text if found is None else found["four"] if found["six"] is None else found["six"]
    try:
        return plain, parse_address(plain)
    except InvalidRequest:
        return None


def _listed(header: str) -> list[str | None]:
    """The hops of an `X-Forwarded-For`, the nearest first."""
    if not header.strip():
        return []
    return [hop.strip() for hop in reversed(header[-_MAX_HEADER:].rsplit(",", _MAX_HOPS)[-_MAX_HOPS:])]


def _elements(header: str) -> list[str | None]:
    """The hops of a `Forwarded`, the nearest first; None where one is hidden, or the header is malformed."""
    if not header.strip():
        return []
    hops: list[str | None] = [None]
    at, end = 0, len(header)
    if end > _MAX_HEADER:
        return hops
    while at < end:
        pair = _PAIR.match(header, at)
        if pair is None:
            return [None]
        if pair[1].lower() == "for":
            value = pair[2]
            hops[-1] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        at = pair.end()
        if at < end and header[at] not in ",;":
            return [None]
        if header[at : at + 1] == ",":
            hops.append(None)
        at += 1
    return hops[::-1][:_MAX_HOPS]
