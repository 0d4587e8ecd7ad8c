"""Servers for the chaos suite, a line that says how far a long test is, and the table of what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from tests.chaos.figures import FILE, Figures
from tests.support.valkey import Server, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup

_FIGURES: Final = pytest.StashKey[Figures]()
KINDS: Final = ("one server", "sentinel", "cluster", "ring")


@dataclass(frozen=True)
class Place:
    """Servers that hold the counters, and the address of a store on them."""

    kind: str
    url: str
    servers: list[Server]


@pytest.fixture(scope="session")
def _ring(servers_folder: Path) -> Iterator[list[Server]]:
    servers = [Server(servers_folder / f"ring-{number}", free_port()) for number in range(3)]
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def ring(_ring: list[Server]) -> Place:
    """Three servers that know nothing of each other, without a key."""
    for server in _ring:
        server.revive()
        server.ask("FLUSHALL")
    return Place("ring", "redis+ring://" + ",".join(f"127.0.0.1:{server.port}" for server in _ring), _ring)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of set-up in turn, without a key."""
    if request.param == "ring":
        ring: Place = request.getfixturevalue("ring")
        return ring
    if request.param == "sentinel":
        sentinel: SentinelSetup = request.getfixturevalue("sentinel_setup")
        return Place(request.param, sentinel.url, [sentinel.primary()])
    if request.param == "cluster":
        cluster: ClusterSetup = request.getfixturevalue("cluster_setup")
        return Place(request.param, cluster.url, cluster.primaries())
    server: Server = request.getfixturevalue("valkey")
    return Place(request.param, server.url, [server])


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Where to put what was measured."""
    return request.config.stash.setdefault(_FIGURES, Figures())


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Shows a line now, whatever is captured."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    assert capture is not None
    assert reporter is not None

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"  {line}")

    return show


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was measured, and keep it."""
    figures = config.stash.get(_FIGURES, None)
    if figures is not None and figures.taken:
        terminalreporter.section("measured")
        for line in figures.table():
            terminalreporter.write_line(line)
        figures.write()
        terminalreporter.write_line(f"kept in {FILE.name}")
