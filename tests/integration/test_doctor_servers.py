"""`headgate doctor` on real servers: nothing is found on healthy ones, and every planted fault is."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.doctor import IN_MEMORY, found
from tests.support.service import Service
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database, database, migrate
from headgate.adapters.redis.inspection import ServerFacts
from headgate.archive.retention import Retention
from headgate.cli.diagnosis.catalog import KINDS, Report
from headgate.cli.diagnosis.database_checks import judge as judge_database
from headgate.cli.diagnosis.redis_checks import judge
from headgate.testing import Fault, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cluster import ClusterSetup
    from tests.support.postgres import Postgres
    from tests.support.sentinel import SentinelSetup

EXAMPLES = str(Path(__file__).parents[2] / "examples" / "rules.yaml")
DURABLE = ("--appendonly", "yes")
PROBLEM_DATABASE = {"database-unsafe"}
"""What is true of the server that tests share: it is faster than it is safe."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A healthy server on a port."""
    server = Server(tmp_path / "valkey", free_port(), options=DURABLE)
    yield server
    server.kill()


def redis(server: Server, **settings: str) -> dict[str, str]:
    """What is found of a server."""
    return found(**({"rules_file": EXAMPLES, "redis_url": server.url} | settings))


def test_nothing_is_found_on_a_healthy_service(tmp_path: Path) -> None:
    """A service on embedded servers, as `make serve` runs it, while it runs; and looking changes nothing."""
    folder = tmp_path / "data"
    port = free_port()
    service = Service(
        "--rules", EXAMPLES, "--database", "embedded://", redis_url="embedded://", data_dir=str(folder), port=str(port)
    )
    settings = {"rules_file": EXAMPLES, "database_url": "embedded://", "data_dir": str(folder), "port": str(port)}
    try:
        wait_until(lambda: "partitions-missing" not in found(**settings), "the partitions of coming months are there")
        assert found(**settings) == {}
        before = sorted(str(file) for file in folder.glob("*"))
        assert found(**settings) == {}
        assert sorted(str(file) for file in folder.glob("*")) == before
    finally:
        service.close()
    stopped = found(**settings)
    assert set(stopped) == {"embedded-stopped"}
    assert "PostgreSQL" in stopped["embedded-stopped"]
    assert "Valkey" in stopped["embedded-stopped"]


def test_a_service_that_is_not_ready_is_found(tmp_path: Path) -> None:
    """It has been told to stop, and still answers, so that gateways notice."""
    port = str(free_port())
    service = Service(
        "--rules", EXAMPLES, port=port, redis_url="memory://", notice_seconds="60", data_dir=str(tmp_path)
    )
    try:
        service.process.send_signal(signal.SIGTERM)
        settings = IN_MEMORY | {"rules_file": EXAMPLES, "port": port}
        wait_until(lambda: list(found(**settings)) == ["service-not-ready"], "it says that it is not ready")
    finally:
        service.process.kill()
        service.close()


def test_nothing_is_found_on_healthy_topologies(
    server: Server, sentinel_setup: SentinelSetup, cluster_setup: ClusterSetup
) -> None:
    """One server, a primary behind sentinels, a cluster: all but what their tests leave out is well."""
    assert redis(server) == {}
    unkept = {"redis-forgets"}  # the servers that tests share write nothing to disk
    assert set(redis(server, redis_url=sentinel_setup.url)) <= unkept
    assert set(redis(server, redis_url=cluster_setup.url)) <= unkept
    gc.collect()  # an open connection to a sentinel would be a warning, and so an error


def test_looking_writes_nothing(server: Server) -> None:
    """No key is made, and the server counts no write."""
    before = server.text("INFO", "persistence")
    assert redis(server) == {}
    assert server.contents() == {}
    changes = re.compile(r"rdb_changes_since_last_save:(\d+)")
    assert changes.findall(server.text("INFO", "persistence")) == changes.findall(before)


CONFIGS = {
    "redis-evicts": ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "it evicts at 100 MB"),
    "redis-memory-full": ({"maxmemory": "1mb"}, "of 1.0 MB are in use"),
    "redis-forgets": ({"appendonly": "no"}, "appendonly is no, and there is no save"),
    "redis-fsync-always": ({"appendfsync": "always"}, "appendfsync is always"),
}


@pytest.mark.parametrize("code", CONFIGS)
def test_a_planted_option_is_found(code: str, server: Server) -> None:
    """Each option of a server that endangers counters."""
    options, words = CONFIGS[code]
    for name, value in options.items():
        server.ask("CONFIG", "SET", name, value)
    codes = redis(server)
    assert list(codes) == [code]
    assert words in codes[code]


def test_a_server_that_is_down_is_found(server: Server) -> None:
    """Nothing listens there any more."""
    server.kill()
    codes = redis(server)
    assert list(codes) == ["redis-down"]
    assert f"127.0.0.1:{server.port}" in codes["redis-down"]
    cluster = redis(server, redis_url=f"redis+cluster://127.0.0.1:{server.port}")
    assert "no node of the cluster answers" in cluster["redis-down"]
    sentinel = redis(server, redis_url=f"redis+sentinel://127.0.0.1:{server.port}/main")
    assert "no sentinel knows where main is" in sentinel["redis-down"]


def test_a_wrong_password_is_found(server: Server) -> None:
    """And a missing one; neither is repeated."""
    server.ask("CONFIG", "SET", "requirepass", "correct")
    for user in ("", ":wrong@"):
        codes = redis(server, redis_url=f"redis://{user}127.0.0.1:{server.port}")
        assert list(codes) == ["redis-refuses"]
        assert "wrong" not in codes["redis-refuses"]


def test_missing_rights_are_found(server: Server) -> None:
    """By the server's own word; a user who may not look is told so."""
    commands = "+eval +evalsha +get +set +del +getrange +setrange +strlen +incrby +pexpire +expire +time"
    server.ask("ACL", "SETUSER", "few", "on", ">secret", "~rl:*", "-@all", *commands.split(), "+zadd", "+zcard")
    codes = redis(server, redis_url=f"redis://few:secret@127.0.0.1:{server.port}")
    assert set(codes) == {"redis-rights", "redis-not-looked-at"}
    assert codes["redis-rights"].endswith("the user may not send zremrangebyscore")
    server.ask("ACL", "SETUSER", "few", "-eval")
    assert redis(server, redis_url=f"redis://few:secret@127.0.0.1:{server.port}")["redis-rights"].endswith("send eval")


def test_rights_for_changes_are_found(server: Server, database_url: str) -> None:
    """With a database, changes travel through Redis, under other keys and a channel."""
    server.ask("ACL", "SETUSER", "few", "on", ">secret", "~rl:*", "+@all")
    settings = {"redis_url": f"redis://few:secret@127.0.0.1:{server.port}", "database_url": database_url}
    assert "hmget, hset, hvals, hdel, publish, subscribe, get on hg:*" in redis(server, **settings)["redis-rights"]


def test_a_replica_is_found(server: Server, tmp_path: Path) -> None:
    """It cannot count; and a primary without replicas does not do for a rule that waits for one."""
    replica = Server(tmp_path / "replica", free_port(), options=DURABLE)
    try:
        replica.ask("REPLICAOF", "127.0.0.1", str(server.port))
        wait_until(lambda: "master_link_status:up" in replica.text("INFO", "replication"), "the replica follows")
        codes = redis(replica)
        assert codes["redis-replica"].endswith(f"it is a replica of 127.0.0.1:{server.port}")
    finally:
        replica.kill()
    (tmp_path / "rules.yaml").write_text("rules: [{name: a, limits: 5/minute, wait_replicas: 2}]")
    codes = redis(server, rules_file=str(tmp_path / "rules.yaml"))
    assert "a rule has wait_replicas 2" in codes["redis-replicas-few"]


def test_a_cluster_that_is_taken_for_one_server_is_found(tmp_path: Path) -> None:
    """And one whose slots are not all served."""
    options = (*DURABLE, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    node = Server(tmp_path / "node", free_port(), options=options)
    try:
        assert list(redis(node)) == ["redis-is-cluster"]
        node.ask("CLUSTER", "ADDSLOTSRANGE", "0", "9999")
        codes = redis(node, redis_url=f"redis+cluster://127.0.0.1:{node.port}")
        assert "6,384 of 16,384 slots have no server" in codes["redis-slots-missing"]
    finally:
        node.kill()


def test_a_slow_server_is_found(server: Server) -> None:
    """Slower than half of what a check waits for."""
    assert server.port is not None
    with FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.play(Fault.SLOW, seconds=0.03)
        codes = redis(server, redis_url=f"redis://127.0.0.1:{proxy.port}")
    assert list(codes) == ["redis-slow"]
    assert "a check waits 50 ms at most" in codes["redis-slow"]


def test_clocks_that_differ_are_found(server: Server, database_url: str) -> None:
    """Of Redis and of the database, in both directions."""
    for seconds, side in ((90, "behind"), (-90, "ahead of")):
        codes = found(
            lambda shift=seconds: wall_clock() + shift * 1_000_000,  # type: ignore[misc] # its type is that of a clock
            redis_url=server.url,
            database_url=database_url,
        )
        assert re.search(rf"its clock is \d+\.\d s {side} ours", codes["redis-clock"])
        assert re.search(rf"its clock is \d+\.\d s {side} ours", codes["database-clock"])


def test_a_server_that_cannot_save_is_found(tmp_path: Path) -> None:
    """Its folder is gone."""
    folder = tmp_path / "valkey"
    server = Server(folder, free_port())
    try:
        server.ask("CONFIG", "SET", "save", "3600 1")
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        server.ask("BGSAVE")
        wait_until(lambda: "rdb_last_bgsave_status:err" in server.text("INFO", "persistence"), "the save has failed")
        assert "rdb_last_bgsave_status failed" in redis(server)["redis-saves-fail"]
    finally:
        server.kill()


def test_an_old_server_is_found() -> None:
    """By the versions that headgate is for; there is no such server to start here."""
    for version, is_valkey in (((6, 0, 16), False), ((7, 2), True)):
        report = Report()
        facts = ServerFacts("here", version, is_valkey, {"redis_version": "x"}, {}, "master", 0, 0.0, 0.001)
        judge(facts, report, deadline=0.05, kind="", wait_replicas=0)
        assert [issue.code for issue in report.issues] == ["redis-old"]


def database_codes(url: str, **settings: str) -> dict[str, str]:
    """What is found of a database, beside what is true of every database of the tests."""
    codes = found(**(IN_MEMORY | {"rules_file": EXAMPLES, "database_url": url} | settings))
    return {code: said for code, said in codes.items() if code not in PROBLEM_DATABASE}


def made_ahead(url: str) -> None:
    """Make what the service would have made."""

    async def run() -> None:
        database = Database(url)
        await Retention(database, wall_clock).make_ahead()
        await database.close()

    asyncio.run(run())


def test_nothing_is_found_on_a_prepared_database(database_url: str) -> None:
    """Whose partitions are there; without them, months to come are named."""
    missing = database_codes(database_url)
    assert list(missing) == ["partitions-missing"]
    made_ahead(database_url)
    assert database_codes(database_url) == {}
    assert (
        "fsync is off and synchronous_commit is off" in found(**IN_MEMORY, database_url=database_url)["database-unsafe"]
    )


def test_a_database_without_rules_is_found(database_url: str) -> None:
    """Unless a file brings them."""
    made_ahead(database_url)
    codes = found(**IN_MEMORY, database_url=database_url)
    assert set(codes) - PROBLEM_DATABASE == {"rules-none"}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://user:p@ss@word@host/name", "database-address"),
        ("postgresql://headgate@127.0.0.1:1/none", "database-down"),
    ],
)
def test_a_database_that_is_not_there_is_found(url: str, code: str) -> None:
    """Without anything of its address that may be a password."""
    codes = database_codes(url)
    assert list(codes) == [code]
    assert "ss@word" not in codes[code]


def test_a_database_that_refuses_is_found(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none of that name; or its server is too old."""
    assert list(database_codes(postgres.url("nowhere"))) == ["database-refuses"]
    monkeypatch.setattr(database, "_OLDEST", 99)
    assert "headgate needs 99 or newer" in database_codes(postgres.new_database())["database-old"]


def test_faults_of_the_schema_are_found(postgres: Postgres) -> None:
    """None yet, an older one, one of a newer headgate."""
    empty = postgres.new_database(empty=True)
    assert "no schema of headgate's yet" in database_codes(empty)["schema-behind"]
    newer = postgres.new_database()
    name = newer.partition("@/")[2].partition("?")[0]
    postgres.execute(name, "DELETE FROM migrations WHERE number = (SELECT max(number) FROM migrations)")
    assert "it lacks 1 of " in database_codes(newer)["schema-behind"]
    postgres.execute(name, r"INSERT INTO migrations (number, name, digest) VALUES (9999, 'x', '\x00')")
    assert "migration 9999" in database_codes(newer)["schema-foreign"]


def test_missing_rights_of_the_role_are_found(postgres: Postgres) -> None:
    """A role that may read and not write."""
    url = postgres.new_database()
    made_ahead(url)
    name = url.partition("@/")[2].partition("?")[0]
    role = f"reader_{name}"
    grants = f"CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"
    postgres.execute(name, grants)
    codes = database_codes(url.replace("postgres@", f"{role}@"))
    assert list(codes) == ["database-rights"]
    assert "users" in codes["database-rights"]


@pytest.mark.parametrize(
    ("changed", "latency", "code"), [({"is_standby": True}, 0.001, "database-standby"), ({}, 0.2, "database-slow")]
)
def test_a_standby_and_a_slow_database_are_found(changed: dict[str, object], latency: float, code: str) -> None:
    """By what the server says of itself, and by how long it takes to; neither is at hand here."""
    report = Report()
    row = {"is_standby": False, "database": "d", "encoding": "UTF8", "fsync": "on", "synchronous_commit": "on"}
    judge_database(row, 0.09, 0.0, report)
    assert report.issues == []
    judge_database(row | changed, latency, 0.0, report)
    assert [issue.code for issue in report.issues] == [code]


def test_everything_that_can_be_found_is_planted() -> None:
    """Each code of the catalog stands in one of these tests."""
    folder = Path(__file__).parent
    text = "".join(
        (folder / name).read_text(encoding="utf-8") for name in ("test_doctor_servers.py", "test_doctor_settings.py")
    )
    assert [code for code in KINDS if f'"{code}"' not in text] == []


def test_an_encoding_that_loses_texts_is_found(postgres: Postgres) -> None:
    """A database in Latin-1 has no Greek user."""
    postgres.execute(
        "postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )

    async def prepare() -> None:
        opened = Database(postgres.url("latin"))
        await migrate(opened)
        await opened.close()

    asyncio.run(prepare())
    assert "has the encoding LATIN1" in database_codes(postgres.url("latin"))["database-encoding"]
