"""Envoy's rate-limit service beside the decision service."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from headgate import HeadgateError, Limiter
from headgate.settings import Settings
from headgate.wiring import listeners as wiring

if TYPE_CHECKING:
    from headgate.edge.listening import Address


def _served(**settings: int) -> Address | None:
    async def run() -> Address | None:
        limiter, chosen = Limiter.open("memory://"), Settings(**settings)  # type: ignore[arg-type] # a port
        with wiring.reserved_grpc_address(chosen) as address:
            async with wiring.rate_limit_service(limiter, None, lambda: True, chosen, address):
                return address

    return asyncio.run(run())


def test_it_says_where_it_listens() -> None:
    """Port 0 becomes a free one."""
    address = _served(grpc_port=0)
    assert address is not None
    assert address.port > 0


def test_without_its_extra_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision service runs all the same."""
    monkeypatch.setattr(wiring, "find_spec", lambda _: None)
    assert _served(grpc_port=0) is None


def test_a_port_that_is_taken_names_its_setting() -> None:
    """The error of a second service names the setting of the port to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(HeadgateError, match="HEADGATE_GRPC_PORT"):
        _served(grpc_port=taken.getsockname()[1])
