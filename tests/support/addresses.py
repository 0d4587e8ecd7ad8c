"""Addresses to listen on."""

from __future__ import annotations

from headgate.edge.listening import Address, reserved_address


def free_address(host: str, port: int) -> Address:
    """Resolve an address without reserving it: the caller listens there at once."""
    with reserved_address(host, port) as address:
        return address
