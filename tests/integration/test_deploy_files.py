"""The recommended configurations in deploy/, read by the servers that they are for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.optional_servers import find_server
from tests.support.valkey import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).parents[2] / "deploy" / "redis" / "persistence.conf"


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.needs("redis-server"))])
def server(request: pytest.FixtureRequest, servers_folder: Path) -> Iterator[Server]:
    """A server with the recommended settings, of each kind that there is."""
    binary = find_server("redis-server") if request.param == "redis" else None
    made = Server(servers_folder / f"persistent-{request.param}", options=[str(FILE)], binary=binary)
    yield made
    made.kill()


def test_recommended_persistence(server: Server) -> None:
    """A server with the recommended settings forgets nothing that was on its disk, and throws nothing away."""
    wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    for name, value in wanted.items():
        assert server.ask("CONFIG", "GET", name) == [name.encode(), value.encode()]
    server.ask("SET", "rl:h:fw1d:u1", "3", "EX", "86400")
    server.ask("CONFIG", "SET", "appendfsync", "always")
    server.ask("SET", "rl:h:fw1d:u2", "4", "EX", "86400")  # which brings all before it to the disk
    server.restart()
    assert server.ask("MGET", "rl:h:fw1d:u1", "rl:h:fw1d:u2") == [b"3", b"4"]


@pytest.mark.parametrize("name", ["archiving.conf", "recovery.conf"])
def test_every_setting_of_postgres_has_a_line(name: str) -> None:
    """The files for PostgreSQL consist of comments and settings; tests/chaos/test_point_in_time.py runs them."""
    text = (FILE.parents[1] / "postgres" / name).read_text(encoding="utf-8")
    assert all(not line or line.startswith("#") or " = " in line for line in text.splitlines())
