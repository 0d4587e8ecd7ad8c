"""The flood suite of `tests/chaos/test_flood_http.py`, in a few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.http_attacks import ATTACKS, ON_ADMIN, PARSING
from tests.support.http_flood import flood_server, flooded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.http_flood import FloodServer

pytestmark = pytest.mark.serial


MAX_TURN = 0.1
"""Of processor time, on a machine that may be busy; `make chaos` holds turns to 20 ms."""


@pytest.fixture(scope="module")
def server() -> Iterator[FloodServer]:
    with flood_server(connections=1_024) as server:
        yield server


@pytest.mark.parametrize(
    "names", [tuple(PARSING), tuple(name for name in ATTACKS if name not in PARSING)], ids=["parsing", "connections"]
)
def test_a_normal_client_is_answered_beside_every_attack(server: FloodServer, names: tuple[str, ...]) -> None:
    """It gets its answers, and no turn of the event loop takes 20 ms of processor time."""
    flooded(server, 4, 0.1, *names).check(MAX_TURN)


def test_a_flood_on_the_admin_port_does_not_starve_decisions(database_url: str) -> None:
    """Calls without a token, with guessed ones, with large paths and bodies: checks are answered beside them."""
    with flood_server(database_url=database_url) as server:
        flooded(server, 4, 0.2, *ON_ADMIN).check(MAX_TURN)
