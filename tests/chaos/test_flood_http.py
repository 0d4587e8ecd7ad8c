"""Floods on the HTTP ports at full length, with a normal client beside each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.support.http_attacks import ATTACKS, ON_ADMIN, PARSING
from tests.support.http_flood import flood_server, flooded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.http_flood import FloodServer

_SECONDS: Final = 10.0
_MEGABYTES: Final = 256
"""Beyond what the service has at its start: 64 MiB of requests, as much that waits for its turn, and copies."""
_GROWTH: Final = 24
"""Megabytes by which a second wave may differ from the first; the allocator keeps some of what it had."""
_HOLDING: Final = (
    *("pipelined checks, unread", "metrics, unread", "slow bodies", "connections that say nothing"),
    *("bodies that do not end", "1,000 checks"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[FloodServer]:
    with flood_server() as server:
        yield server


@pytest.mark.parametrize("connections", [1, 10])
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in PARSING])
def test_a_normal_client_is_answered(server: FloodServer, name: str, connections: int) -> None:
    """Beside any attack on the decision service it gets its answers, and `/livez` answers throughout."""
    flooded(server, connections, _SECONDS, name).check()


@pytest.mark.parametrize(("connections", "seconds"), [(1, 2.0), (10, _SECONDS)])
@pytest.mark.parametrize("name", PARSING)
def test_no_request_is_expensive(server: FloodServer, name: str, connections: int, seconds: float) -> None:
    """Requests that are made to be expensive cost no normal client its answer."""
    flooded(server, connections, seconds, name).check()


@pytest.mark.parametrize("connections", [1, 10])
@pytest.mark.parametrize("name", ON_ADMIN)
def test_a_flood_on_the_admin_port_starves_no_decision(database_url: str, name: str, connections: int) -> None:
    """Decisions go on beside any flood on the admin API by callers without a token."""
    with flood_server(database_url=database_url) as server:
        flooded(server, connections, _SECONDS, name).check()


@pytest.mark.parametrize("name", _HOLDING)
def test_memory_is_bounded(name: str) -> None:
    """What an attack makes the service hold is bounded, and a second wave makes it hold no more."""
    with flood_server() as server:
        before = server.figures()["megabytes"]
        first = flooded(server, 10, _SECONDS / 2, name)
        second = flooded(server, 10, _SECONDS / 2, name)
        assert first.megabytes < before + _MEGABYTES
        assert second.megabytes < first.megabytes + _GROWTH
