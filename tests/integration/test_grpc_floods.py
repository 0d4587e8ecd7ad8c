"""A gRPC server under attack, in short; `tests/chaos/test_flood_grpc.py` has every attack at full length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.grpc_flood import flood
from tests.support.grpc_target import target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.grpc_target import Target

pytestmark = pytest.mark.serial

ATTACKS = {
    "calls": "valid calls,rapid reset,unfinished messages,large questions",
    "header blocks": "many fields,size updates,continuations",
    "frames": "empty data,settings,window updates",
}

MAX_TURN = 0.1
"""Of processor time, on a machine that may be busy; `make chaos` holds turns to 20 ms."""


@pytest.fixture(scope="module")
def attacked() -> Iterator[Target]:
    with target() as made:
        yield made


@pytest.mark.parametrize("name", ATTACKS)
def test_others_are_answered_while_one_client_floods(attacked: Target, name: str) -> None:
    """Half a second each from two connections: a normal client is answered, and every turn of the loop is short."""
    seen = flood(attacked, ATTACKS[name], connections=2, seconds=0.5)
    assert seen.answered >= 0.95 * seen.asked > 0
    assert seen.longest_turn < MAX_TURN
