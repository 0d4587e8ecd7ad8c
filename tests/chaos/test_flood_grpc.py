"""Floods of the gRPC port: every attack known, for ten seconds, from one connection and from ten, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.grpc_attacks import ATTACKS
from tests.support.grpc_flood import flood
from tests.support.grpc_target import target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.grpc_target import Target

SECONDS = 10
MOST_MEMORY = 160 * 2**20
"""Of the whole process: some 60 MiB of Python, 64 MiB that connections may hold, and what falls between."""
GROWTH = 8 * 2**20
"""Between two waves: what the allocator keeps."""


@pytest.fixture(scope="module")
def attacked() -> Iterator[Target]:
    with target() as made:
        yield made


@pytest.mark.parametrize("connections", [1, 10])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_flood_harms_no_other_client(attacked: Target, name: str, connections: int) -> None:
    """A normal client has 95 % of its answers, turns are short, and a second wave takes no more memory."""
    first = flood(attacked, name, connections, SECONDS)
    second = flood(attacked, name, connections, SECONDS)
    for wave in (first, second):
        assert wave.answered >= 0.95 * wave.asked > 0
        assert wave.longest_turn < 0.02
        assert wave.resident < MOST_MEMORY
    assert second.resident < first.resident + GROWTH
