"""Redis over TLS with client certificates, by a real server: who is trusted, who is refused, what is renewed."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.authority import Authority
from tests.support.optional_servers import find_server
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until_async

from headgate import Limiter as AsyncLimiter
from headgate.sync import Limiter

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.needs("redis-server")


class Certificates:
    """The files of both sides: what the server shows, what its clients show, and who is trusted."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._authority = Authority(folder, "authority")
        self.trusted = self._authority.file
        self.server, self.client = self._authority.certificate("server"), self._authority.certificate("client")

    def of_another_host(self) -> dict[str, str]:
        """What the server is told instead, to show a certificate that names an address it does not have."""
        certificate, key = self._authority.certificate("other", "192.0.2.1")
        return {"tls-cert-file": certificate, "tls-key-file": key}

    def options(self) -> dict[str, str]:
        """What the server is told."""
        return {
            "tls-cert-file": self.server[0],
            "tls-key-file": self.server[1],
            "tls-ca-cert-file": str(self.trusted),
        }

    def url(self, port: int) -> str:
        """Where clients find the server."""
        certificate, key = self.client
        options = f"ssl_ca={self.trusted}&ssl_cert={certificate}&ssl_key={key}"
        return f"rediss://127.0.0.1:{port}?{options}&deadline_ms=5000&probe_ms=20"

    def replace(self, others: Certificates) -> None:
        """Put the files of others in the place of these."""
        ours, theirs = ((each.trusted, *map(Path, each.server), *map(Path, each.client)) for each in (self, others))
        for old, new in zip(ours, theirs, strict=True):
            os.replace(new, old)  # noqa: PTH105 (at once)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Of the first authority."""
    return Certificates(tmp_path / "first")


@pytest.fixture
def port() -> int:
    """Where TLS is spoken."""
    return free_port()


@pytest.fixture
def server(tmp_path: Path, certificates: Certificates, port: int) -> Iterator[Server]:
    """A server of Redis that asks its clients for a certificate; tests command it on its unix socket."""
    options = [word for name, value in certificates.options().items() for word in (f"--{name}", value)]
    made = Server(tmp_path / "redis", options=("--tls-port", str(port), *options), binary=find_server("redis-server"))
    yield made
    made.kill()


async def _is_counted(limiter: AsyncLimiter) -> bool:
    return (await limiter.hit("k", "1000/day")).source == "store"


@pytest.mark.usefixtures("server")
def test_checks_are_counted(certificates: Certificates, port: int) -> None:
    """With and without await, on the connections of both."""
    url = certificates.url(port)

    async def scenario() -> list[int | None]:
        async with AsyncLimiter.open(url) as limiter:
            return [(await limiter.hit("k", "5/day")).remaining for _ in range(3)]

    assert asyncio.run(scenario()) == [4, 3, 2]
    with Limiter.open(url) as limiter:
        assert [limiter.hit("k", "5/day").remaining for _ in range(2)] == [1, 0]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("ssl_ca={ca}&", "", "certificate verify failed"),
        ("&ssl_cert={cert}&ssl_key={key}", "", "connection to redis was lost"),
        ("rediss://", "redis://", "connection to redis was lost"),
    ],
    ids=["unknown-authority", "no-client-certificate", "no-tls"],
)
def test_who_is_not_trusted_counts_nothing(
    old: str, new: str, reason: str, certificates: Certificates, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The check is answered without the server, and the log says why."""
    certificate, key = certificates.client
    old = old.format(ca=certificates.trusted, cert=certificate, key=key)
    url = certificates.url(port)
    if new == "redis://":
        url = url.partition("?")[0] + "?deadline_ms=5000&probe_ms=20"
    assert old in url
    assert reason in _reason_why_nothing_is_counted(url.replace(old, new), caplog)


def test_a_server_with_the_certificate_of_another_host_counts_nothing(
    certificates: Certificates, server: Server, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is of the right authority, but says that it is of another address."""
    server.ask("CONFIG", "SET", *(word for pair in certificates.of_another_host().items() for word in pair))
    assert "IP address mismatch" in _reason_why_nothing_is_counted(certificates.url(port), caplog)


def _reason_why_nothing_is_counted(url: str, caplog: pytest.LogCaptureFixture) -> str:
    """The line that is logged when a server cannot be used."""

    async def scenario() -> None:
        async with AsyncLimiter.open(url) as limiter:
            for _ in range(20):
                assert (await limiter.hit("k", "5/day")).source == "degraded_allow"

    asyncio.run(scenario())
    (opened,) = [message for message in caplog.messages if message.startswith("circuit open: redis ")]
    return opened


def test_certificates_of_both_sides_are_renewed(
    certificates: Certificates, server: Server, port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both sides change to another authority: new connections show and trust the new files, with no restart."""
    caplog.set_level(logging.INFO, "headgate")
    before = certificates.url(port)

    async def scenario() -> None:
        async with AsyncLimiter.open(before) as limiter:
            assert await _is_counted(limiter)
            old = Certificates(tmp_path / "old")
            old.replace(certificates)
            certificates.replace(Certificates(tmp_path / "second"))
            assert await _is_counted(limiter)  # on the connection that is open
            server.ask("CONFIG", "SET", *(word for pair in certificates.options().items() for word in pair))
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await wait_until_async(lambda: _is_counted(limiter), interval=0.02)
            assert server.ask("GET", "none") is None
        async with AsyncLimiter.open(old.url(port)) as outdated:
            assert not await _is_counted(outdated)

    asyncio.run(scenario())
    assert any(message.startswith("reloaded: credentials of redis, from ") for message in caplog.messages)
