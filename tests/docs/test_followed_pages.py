"""Pages whose commands are typed from top to bottom, each in an empty folder."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import asyncpg
import pytest
from tests.docs.typed_pages import CHANGING, DATABASES, KEEPING, PATTERNS, READING, RULES_AS_CODE, SERVING
from tests.integration.mock_kafka import MockKafka
from tests.support.authority import Authority
from tests.support.s3 import KEYS
from tests.support.service import EXAMPLE_RULES, Run, Service, environment
from tests.support.shell_page import follow
from tests.support.stored_events import COLUMNS
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.postgres import Postgres
    from tests.support.s3 import S3Server

pytestmark = [pytest.mark.needs("curl"), pytest.mark.needs("jq")]

_QUICK: Final = {"notice_seconds": "0", "flush_seconds": "0.05"}
_ACCESS_LOG: Final = '203.0.113.9 - u_{0} [{1:%d/%b/%Y:%H:%M:%S} +0000] "GET /api/search HTTP/1.1" 200 12 "-" "-"\n'
_NGINX: Final = """
http {
  limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
  server { location /search { limit_req zone=one burst=20 nodelay; } }
}
"""
_GATEWAY_LOG: Final = (
    '{{"time": "{1:%Y-%m-%dT%H:%M:%SZ}", "auth": {{"sub": "u_{0}"}}, "method": "GET", "path": "/login"}}\n'
)


def _made(folder: Path, page: str) -> Path:
    """The folder in which a page is typed; now or later."""
    here = folder / re.sub(r"\W", "", page)
    here.mkdir(exist_ok=True)
    return here


class TypePage(Protocol):
    def __call__(self, name: str, settings: Mapping[str, str], addresses: Mapping[str, str]) -> None: ...


class Busy(NamedTuple):
    """A service with the example rules, where callers were denied; its database, and its data directory."""

    service: Service
    database: str
    data: Path

    @property
    def addresses(self) -> dict[str, str]:
        """Where the pages say that it is, and where it is."""
        return {"http://127.0.0.1:8081": self.service.admin_url, "localhost:8080": self.service.url.partition("//")[2]}

    def settings(self, **others: str) -> dict[str, str]:
        """For commands on its machine, and for services that a page starts beside it."""
        ports = {"port": "0", "admin_port": "0", "grpc_port": "0"}
        return environment(**_QUICK, **ports, database_url=self.database, url=self.service.url, **others)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a short name, for the paths of sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hg-") as name:
        yield Path(name)


@pytest.fixture
def type_page(root: Path, folder: Path) -> TypePage:
    """Types a page in a folder that has the examples and a rules file; everything ends as the page leads to expect."""

    def typed(name: str, settings: Mapping[str, str], addresses: Mapping[str, str]) -> None:
        here, page = _made(folder, name), root / "docs" / name
        shutil.copytree(root / "examples", here / "examples")
        for rules in ("rules.yaml", "draft.yaml"):
            if not re.search(rf"(?:-o|--out) {rules}", page.read_text(encoding="utf-8")):  # which makes it
                shutil.copy(EXAMPLE_RULES, here / rules)
        usual = {".venv/bin/headgate": "headgate", "headgate gateway ": "headgate gateway --port 0 "}
        done = follow(page, here, settings, {**usual, **addresses}, PATTERNS)
        assert done, name
        problems = [each.problem for each in done if each.problem]
        assert not problems, f"{name}:\n" + "\n".join(problems)

    return typed


@pytest.fixture
def busy(postgres: Postgres, folder: Path) -> Iterator[Busy]:
    """A service with the example rules, and a caller that was denied."""
    database, data = postgres.new_database(), folder / "data"
    running = Service("--rules", str(EXAMPLE_RULES), database_url=database, data_dir=str(data), redis_url="embedded://")
    for _ in range(7):
        running.check(user="u_42", ip="203.0.113.9", method="POST", path="/login", tier="free")
    wait_until(lambda: running.admin.get("/v1/events?decision=denied").json()["items"], "the denials are stored")
    yield Busy(running, database, data)
    running.close()


def test_pages_about_a_running_service(busy: Busy, type_page: TypePage, folder: Path) -> None:
    """On one service; its data directory is in the folder of each page, as it is where people have started it."""
    for name in READING:
        (_made(folder, name) / ".headgate").symlink_to(busy.data)
        type_page(name, busy.settings(), busy.addresses)


def test_json_on_the_pages_is_what_the_product_takes_and_says(
    busy: Busy, root: Path, folder: Path, headgate: Run, fences: Callable[[Path, str], list[tuple[int, str]]]
) -> None:
    """Files to load can be loaded, and answers have the members that are shown; test_http_example.py has the rest."""
    users, keys = [text for _, text in fences(root / "docs/reference/cli.md", "json")]
    for verb, text in (("users", users), ("keys", keys)):
        (folder / f"{verb}.jsonl").write_text(text, encoding="utf-8")
        done = headgate(verb, "load", str(folder / f"{verb}.jsonl"), database_url=busy.database)
        assert done.returncode == 0, done.stderr
    hot, applied = [json.loads(text) for _, text in fences(root / "docs/reference/admin-api.md", "json")]
    busy.service.check(user="u_42", method="GET", path="/api/search")
    wait_until(lambda: busy.service.admin.get("/v1/hot").json()["counters"], "the counters are watched")
    answer = busy.service.admin.get("/v1/hot").json()
    assert answer.keys() == hot.keys()
    assert answer["counters"][0].keys() == hot["counters"][0].keys()
    made = busy.service.admin.post("/v1/blocks", json={"user": "u_666"}).json()
    assert made["applied"].keys() == applied["applied"].keys()


def test_pages_that_change_tiers_and_rules(busy: Busy, type_page: TypePage) -> None:
    """On one service, one page after another."""
    for name in CHANGING:
        type_page(name, busy.settings(), busy.addresses)


def test_the_page_on_rules_as_code(busy: Busy, type_page: TypePage) -> None:
    """At the end no rule of the example is lost."""
    type_page(RULES_AS_CODE, busy.settings(), busy.addresses)
    admin = busy.service.admin
    names = {rule["name"] for rule in admin.get("/v1/ruleset").json()["rules"]}
    assert {"health", "login", "search", "exports", "facets", "suggest", "web.remote_address"} <= names
    owners = {rule["owner"] for rule in admin.get("/v1/rules?limit=100").json()["items"]}
    assert owners == {"platform", "search", "gateway"}
    assert admin.get("/v1/users/u_42").json()["overrides"] == {"exports": ["500/hour"]}


def _servers(request: pytest.FixtureRequest, folder: Path) -> dict[str, str]:
    """What stands for the servers, secrets and certificates of the page on running the service."""
    (folder / "token").write_text("a-token-of-the-test-0123456789", encoding="ascii")
    here = _made(folder, "how-to/run-the-service.md")
    certificates = Authority(here, "ours")
    certificates.certificate("service")
    return {
        "redis://host:6379": request.getfixturevalue("valkey").url,
        "postgresql://host/headgate": request.getfixturevalue("database_url"),
        "/run/secrets/token": str(folder / "token"),
        "--host 0.0.0.0": "--host 127.0.0.1",
    }


def _brokers(request: pytest.FixtureRequest, folder: Path) -> dict[str, str]:
    """What stands for the brokers of the page on Kafka, and for a secret."""
    cluster = MockKafka()
    request.addfinalizer(lambda: cluster.__exit__(None, None, None))
    (folder / "kafka").write_text(
        "kafka-1:9093?security.protocol=SASL_SSL&sasl.mechanism=SCRAM-SHA-512&sasl.username=headgate&sasl.password=…\n",
        encoding="utf-8",
    )
    return {"=kafka-1:9092,kafka-2:9092": f"={cluster.servers}", "/run/secrets/kafka": str(folder / "kafka")}


def _regions(request: pytest.FixtureRequest, _folder: Path) -> dict[str, str]:
    servers = request.getfixturevalue("ring_servers")
    return {
        f"redis.{name}.example.com:6379": f"127.0.0.1:{server.port}"
        for name, server in zip(("eu", "us", "ap"), servers, strict=True)
    }


def _cluster(request: pytest.FixtureRequest, _folder: Path) -> dict[str, str]:
    return {"redis+cluster://a:6379,b:6379,c:6379": request.getfixturevalue("cluster_setup").url}


def _limiters(_request: pytest.FixtureRequest, folder: Path) -> dict[str, str]:
    """What stands for an application with slowapi, and for a gateway that limits."""
    here = _made(folder, "how-to/move-from-slowapi-and-flask-limiter.md")
    shutil.copy(EXAMPLE_RULES.with_name("slowapi_app.py"), here / "app.py")
    (here / "nginx.conf").write_text(_NGINX, encoding="ascii")
    return {}


def _old_service(request: pytest.FixtureRequest, _folder: Path) -> dict[str, str]:
    return {"redis://redis:6379": request.getfixturevalue("valkey").url}


STANDS_FOR: Final[Mapping[str, Callable[[pytest.FixtureRequest, Path], dict[str, str]]]] = {
    "how-to/run-the-service.md": _servers,
    "how-to/send-events-to-kafka.md": _brokers,
    "how-to/move-from-envoy-ratelimit.md": _old_service,
    "how-to/move-from-slowapi-and-flask-limiter.md": _limiters,
    "how-to/several-regions.md": _regions,
    "how-to/use-a-cluster.md": _cluster,
}


@pytest.mark.parametrize("name", SERVING)
def test_pages_that_start_services(
    name: str, type_page: TypePage, folder: Path, request: pytest.FixtureRequest
) -> None:
    """Each on a fresh data directory, and on ports of its own."""
    port, admin_port, grpc_port = (str(free_port()) for _ in range(3))
    settings = {**_QUICK, "port": port, "admin_port": admin_port, "grpc_port": grpc_port}
    addresses = STANDS_FOR[name](request, folder) if name in STANDS_FOR else {}
    addresses |= {
        f"{host}:{shown}": f"127.0.0.1:{real}"
        for host in ("localhost", "127.0.0.1")
        for shown, real in ((8080, port), (8081, admin_port))
    }
    type_page(name, environment(**settings, url=f"http://127.0.0.1:{port}"), addresses)


async def _make_older(database: str, month: datetime) -> None:
    """Have the same events once more, in another month."""
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("SELECT make_event_partition($1)", month)
        others = ", ".join(f'"{name}"' for name in COLUMNS if name not in {"at", "id"})
        copy = f"INSERT INTO events (at, id, {others}) SELECT $1, md5(id), {others} FROM events"  # noqa: S608 (our own words)
        await connection.execute(copy, month)
    finally:
        await connection.close()


def test_pages_about_old_events(busy: Busy, type_page: TypePage, folder: Path, s3: S3Server) -> None:
    """On one database and one archive; the months that the pages name stand for one that ended long ago."""
    month = (datetime.now(UTC).replace(day=15) - timedelta(days=6 * 30)).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    after = (month + timedelta(days=31)).replace(day=1)
    asyncio.run(_make_older(busy.database, month + timedelta(days=3)))
    bucket = s3.new_bucket()
    with gzip.open(folder / "access.log.1.gz", "wt", encoding="ascii") as log:
        log.writelines(_ACCESS_LOG.format(number % 3, month) for number in range(40))
    addresses = busy.addresses | {
        "postgresql://headgate@db.example.com/headgate": busy.database,
        "s3://my-bucket/headgate": bucket,
        "https://minio.example.com:9000": s3.endpoint,
        **dict.fromkeys(("2026-06-01", "2026-02-01"), f"{after:%Y-%m-%d}"),
        **dict.fromkeys(("2026-05", "2026-01"), f"{month:%Y-%m}"),
        "/var/log/nginx": str(folder),
    }
    settings = busy.settings(archive_url=bucket, s3_endpoint=s3.endpoint) | KEYS
    for name in KEEPING:
        here = _made(folder, name)
        (here / "gateway.jsonl").write_text(_GATEWAY_LOG.format(1, month) * 9, encoding="ascii")
        type_page(name, settings, addresses)


def test_pages_about_databases(postgres: Postgres, valkey: Server, type_page: TypePage, folder: Path) -> None:
    """On a server of PostgreSQL where the commands of these pages may do everything."""
    server = {"PGHOST": str(postgres.folder), "PGUSER": "postgres"}
    addresses = {
        "postgresql://headgate@host/headgate": f"postgresql://headgate@/headgate?host={postgres.folder}",
        "/var/lib/headgate": str(folder / "kept"),
    }
    ports = {"port": "0", "admin_port": "0", "grpc_port": "0"}
    try:
        for name in DATABASES:
            postgres.execute("postgres", "DROP DATABASE IF EXISTS headgate")
            settings = {}
            if name == "how-to/recover.md":
                postgres.execute("postgres", "CREATE DATABASE headgate TEMPLATE migrated")
                settings = {"archive_url": str(folder / "archive"), "redis_url": valkey.url}
            url = postgres.url("headgate") if settings else postgres.new_database(empty=True)
            type_page(name, environment(**_QUICK, **ports, **settings, database_url=url) | server, addresses)
    finally:
        postgres.execute("postgres", "DROP DATABASE IF EXISTS headgate")
        postgres.execute("postgres", "DROP ROLE IF EXISTS headgate, headgate_decisions")
