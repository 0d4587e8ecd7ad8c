"""Fixtures: real servers, started from wheels in temporary folders, one of each kind per test process."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.cluster import ClusterSetup
from tests.support.optional_servers import find_server
from tests.support.postgres import Postgres
from tests.support.s3 import S3Server
from tests.support.sentinel import SentinelSetup
from tests.support.valkey import Server, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence


_DAY = 86_400
_SECONDS_FOR_A_TEST = 60
_MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
_ROOM = 4 << 30


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """Where servers keep their files."""
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:  # short, for the paths of unix sockets
        yield Path(folder)


@pytest.fixture(scope="session")
def _valkey(servers_folder: Path) -> Iterator[Server]:
    server = Server(servers_folder / "valkey")
    yield server
    server.kill()


@pytest.fixture
def valkey(_valkey: Server) -> Server:
    """An empty server."""
    _valkey.revive()
    _valkey.ask("FLUSHALL")
    return _valkey


@pytest.fixture(scope="session")
def _sentinel_setup(servers_folder: Path) -> Iterator[SentinelSetup]:
    setup = SentinelSetup(servers_folder)
    yield setup
    setup.stop()


@pytest.fixture
def sentinel_setup(_sentinel_setup: SentinelSetup) -> SentinelSetup:
    """A primary, two replicas and three sentinels, whole and without a key."""
    _sentinel_setup.clean()
    return _sentinel_setup


@pytest.fixture(scope="session")
def _cluster_setup(servers_folder: Path) -> Iterator[ClusterSetup]:
    setup = ClusterSetup(servers_folder)
    yield setup
    setup.stop()


@pytest.fixture
def cluster_setup(_cluster_setup: ClusterSetup) -> ClusterSetup:
    """Three primaries with a replica each, whole and without a key."""
    _cluster_setup.clean()
    return _cluster_setup


@pytest.fixture(scope="session")
def database_folder() -> Iterator[Path]:
    """Where PostgreSQL keeps its files: in memory where there is room, since each new database has 10 MB of them."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM
    with tempfile.TemporaryDirectory(prefix="headgate-", dir=_MEMORY if roomy else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres(database_folder: Path) -> Iterator[Postgres]:
    """A PostgreSQL server; `postgres.new_database()` is a database of your own."""
    server = Postgres(database_folder / "postgres")
    yield server
    server.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A database that a test makes itself is dropped after it; those of fixtures stay."""
    server = getattr(item, "funcargs", {}).get("postgres")
    if not isinstance(server, Postgres):
        return (yield)
    before = server.made
    try:
        return (yield)
    finally:
        server.drop_later(range(before + 1, server.made + 1))


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """The address of a new database with the schema of this version; it is there while the test runs."""
    url = postgres.new_database()
    number = postgres.made
    yield url
    postgres.drop_later([number])


@pytest.fixture
def one_day() -> None:
    """For tests of what was counted today: none begins in the last minute before midnight (UTC)."""
    left = _DAY - time.time() % _DAY
    if left < _SECONDS_FOR_A_TEST:
        time.sleep(left + 1)


@pytest.fixture(scope="session")
def s3(servers_folder: Path) -> Iterator[S3Server]:
    """An S3 service; `s3.new_bucket()` is a place of your own."""
    server = S3Server(servers_folder)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def _redis(servers_folder: Path) -> Iterator[Server]:
    server = Server(servers_folder / "redis", binary=find_server("redis-server"))
    yield server
    server.kill()


@pytest.fixture
def redis_server(_redis: Server) -> Server:
    """An empty server of Redis itself; a test with this fixture is left out where there is none."""
    _redis.revive()
    _redis.ask("FLUSHALL")
    return _redis


@pytest.fixture
def tmp_server(servers_folder: Path) -> Iterator[Callable[[Sequence[str]], Server]]:
    """Makes servers with options of their own, which end with the test."""
    made: list[Server] = []

    def make(options: Sequence[str]) -> Server:
        made.append(Server(servers_folder / f"own{time.monotonic_ns()}", options=options))
        return made[-1]

    yield make
    for server in made:
        server.kill()


@pytest.fixture(scope="session")
def _ring_servers(servers_folder: Path) -> Iterator[list[Server]]:
    servers = [Server(servers_folder / f"ring{number}", free_port()) for number in range(3)]
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def ring_servers(_ring_servers: list[Server]) -> list[Server]:
    """Three empty servers that know nothing of each other."""
    for server in _ring_servers:
        server.revive()
        server.ask("FLUSHALL")
    return _ring_servers


def ring_url(servers: Sequence[Server]) -> str:
    """The address of a ring of servers."""
    return f"redis+ring://{','.join(f'127.0.0.1:{server.port}' for server in servers)}"
