"""Passwords and certificates that change while a program runs: new connections use the new ones."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from tests.integration.test_http_connection import Echo
from tests.support.authority import Authority
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until_async

from headgate import Limiter as AsyncLimiter
from headgate import Request
from headgate.adapters.postgres.database import Database
from headgate.adapters.redis import StoreAddress, store_at
from headgate.core.decision import Hit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.edge.http.server import Transport, serving_http
from headgate.edge.listening import Tls, reserved_address
from headgate.errors import StoreError
from headgate.setting_values import TextFromFile
from headgate.settings import from_environment
from headgate.sync import Limiter

if TYPE_CHECKING:
    from collections.abc import Iterator

_HIT = Hit("rl:{u=rotated}:r:fw1d", Meter(Rate(1_000, 86_400_000_000), Algorithm.FIXED_WINDOW), 1)


def _write(file: Path, text: str) -> None:
    """Put another file in its place, as a secret that is mounted changes."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


def _address(server: Server, password: str) -> str:
    return f"redis://rotated:{password}@127.0.0.1:{server.port}?probe_ms=20&deadline_ms=5000"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with users of its own."""
    made = Server(tmp_path / "valkey", free_port())
    yield made
    made.kill()


@pytest.fixture
def file(tmp_path: Path, server: Server) -> Path:
    """A file with the address of a server whose user has the password `one`."""
    server.ask("ACL", "SETUSER", "rotated", "reset", "on", ">one", "allkeys", "allchannels", "+@all")
    _write(tmp_path / "address", _address(server, "one"))
    return tmp_path / "address"


def _change_password(server: Server, file: Path) -> None:
    server.ask("ACL", "SETUSER", "rotated", "resetpass", ">two")
    _write(file, _address(server, "two"))
    server.ask("CLIENT", "KILL", "USER", "rotated")


def test_a_redis_password_is_changed(file: Path, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """With HEADGATE_REDIS_URL_FILE the next connection signs in with the password that the file has by then."""
    caplog.set_level(logging.INFO, "headgate")
    url = from_environment({"HEADGATE_REDIS_URL_FILE": str(file)}).redis_url
    assert url is not None

    async def scenario() -> None:
        store = store_at(url)
        (first,) = await store.take([_HIT])
        _change_password(server, file)

        async def is_counted() -> bool:
            try:
                (decision,) = await store.take([_HIT])
            except StoreError:
                return False
            return decision.remaining == first.remaining - 1

        await wait_until_async(is_counted, interval=0.02)
        await store.close()

    asyncio.run(scenario())
    assert f"reloaded: credentials of redis, from {file}" in caplog.messages
    assert "one" not in " ".join(caplog.messages).replace("none", "")


def test_a_password_of_another_region_is_changed(file: Path, server: Server, tmp_path: Path) -> None:
    """With HEADGATE_REGION_URLS_FILE too, for each of the regions that the file names."""
    regions = tmp_path / "regions"
    _write(regions, f"us=redis://127.0.0.1:1 eu={file.read_text()}")
    read = from_environment({"HEADGATE_REGION": "us", "HEADGATE_REGION_URLS_FILE": str(regions)})
    rules = [{"name": "all", "per": "global", "limits": "1000/day", "spread": {"regions": "central", "home": "eu"}}]

    def change() -> None:
        _change_password(server, file)
        _write(regions, f"us=redis://127.0.0.1:1 eu={file.read_text()}")

    async def scenario() -> None:
        here = f"redis://127.0.0.1:{server.port}"
        async with AsyncLimiter.open(here, rules, region="us", regions=dict(read.region_urls)) as limiter:
            assert (await limiter.check(Request())).source == "store"
            change()

            async def is_counted() -> bool:
                return (await limiter.check(Request())).source == "store"

            await wait_until_async(is_counted, interval=0.02)

    asyncio.run(scenario())
    (eu,) = [url for name, url in read.region_urls if name == "eu"]
    _write(regions, "us=redis://127.0.0.1:1")
    assert isinstance(eu, TextFromFile)
    with pytest.raises(ValueError, match="it no longer has the region eu"):
        eu.read_again()


def test_threads_see_the_new_password_too(file: Path, server: Server) -> None:
    """The same without await, on the connection that threads share."""
    url = from_environment({"HEADGATE_REDIS_URL_FILE": str(file)}).redis_url
    assert url is not None
    with Limiter.open(url) as limiter:
        assert limiter.hit("k", "100/day").source == "store"
        assert limiter.hit("k", "100/day").source == "store"
        _change_password(server, file)
        while limiter.hit("k", "1000000/day").source != "store":
            pass


def test_what_cannot_be_read_leaves_what_was(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is gone or malformed changes nothing, and the log says so without its text."""
    url = from_environment({"HEADGATE_REDIS_URL_FILE": str(file)}).redis_url
    assert url is not None
    entered = StoreAddress.parse(url).servers[0]
    assert entered.current().handshake() == [("AUTH", "rotated", "one")]
    _write(file, "redis://user:s3cret@host:port:x")
    assert entered.current().handshake() == [("AUTH", "rotated", "one")]
    file.unlink()
    assert entered.current().handshake() == [("AUTH", "rotated", "one")]
    assert len(caplog.messages) == 2
    assert all(message.startswith("not reloaded: credentials of redis: ") for message in caplog.messages)
    assert "s3cret" not in caplog.text


def test_a_certificate_authority_of_redis_is_replaced(tmp_path: Path) -> None:
    """A new file of `ssl_ca` is trusted by the next connection, and the old authority is not."""
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    trusted = tmp_path / "trusted.pem"
    _write(trusted, first.file.read_text())
    sentinels = StoreAddress.parse(f"rediss+sentinel://h/mymaster?ssl_ca={trusted}&sentinel_password=x")
    _write(trusted, second.file.read_text())
    for address in (sentinels.servers[0], sentinels.primary):
        context = address.current().tls
        assert context is not None
        (authority,) = context.get_ca_certs()
        assert authority["subject"] == ((("commonName", "second"),),)
    assert (sentinels.servers[0].current().password, sentinels.primary.current().password) == ("x", None)


def test_a_certificate_of_the_service_is_replaced(tmp_path: Path) -> None:
    """Clients that connect after the files were replaced get the new certificate; open connections stay."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    certificate, key = map(Path, old.certificate("service"))
    later = tmp_path / "later"
    later.mkdir()
    new.folder = later
    replacing = [Path(each) for each in new.certificate("service")]

    async def greet(trusted: Authority, port: int) -> asyncio.StreamWriter:
        context = ssl.create_default_context(cafile=str(trusted.file))
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        return writer

    async def scenario() -> None:
        with reserved_address("127.0.0.1", 0) as address:
            async with serving_http(Echo(), address, 1.0, Transport(tls=Tls(certificate, key))):
                kept = await greet(old, address.port)
                for file, replacement in zip((certificate, key), replacing, strict=True):
                    os.replace(replacement, file)  # noqa: PTH105 (at once)
                (await greet(new, address.port)).close()
                with pytest.raises(ssl.SSLCertVerificationError):
                    await greet(old, address.port)
                assert not kept.is_closing()
                kept.close()

    uvloop.run(asyncio.wait_for(scenario(), 60))


def test_a_database_password_is_changed(database_url: str, tmp_path: Path) -> None:
    """With HEADGATE_DATABASE_URL_FILE a new connection goes by what the file says by then."""
    file = tmp_path / "address"
    _write(file, "postgresql://other:wrong@127.0.0.1:1/none")
    url = from_environment({"HEADGATE_DATABASE_URL_FILE": str(file)}).database_url
    assert url is not None

    async def scenario() -> None:
        database = Database(url, seconds=30)
        _write(file, database_url)
        connection = await database.connect()
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
        async with database.use() as pooled:
            assert await pooled.fetchval("SELECT 1") == 1
        await database.close()

    asyncio.run(scenario())
