"""Every setting in every configuration: it is read and has an effect, or `headgate serve` says that it has none."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from headgate.adapters.postgres import Database
from headgate.archive import schedule
from headgate.cli import serve as command
from headgate.cli import serve_processes
from headgate.cli.serve_processes import Service
from headgate.edge.supervisor import SupervisorPipes
from headgate.setting_effects import idle_settings
from headgate.setting_values import Role
from headgate.settings import Settings, complete

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

    from headgate.core.units import Micros

RULES: Final = "rules: [{name: two, per: [user], limits: 2/minute}]"
FOR_COMMANDS: Final = {"url", "admin_url"}
"""What `headgate check` and other commands ask."""
READ_BY_THE_COMMAND: Final = {"workers", "log_level", "log_format", "notice_seconds", "drain_seconds"}
"""By `serve` itself, before it runs."""
READ_WITHOUT_EFFECT: Final = {
    "deny_cache_mb": "a store in memory is its own cache, and gets the size all the same",
    "overload_seconds": "a store in memory has no queue, and gets the time all the same",
    "rls_on_overload": "what would be answered is chosen whether it can happen or not",
    "denial_events_per_minute": "the recorder gets its shares also where it keeps no events",
    "events_per_minute": "the recorder gets its shares also where it keeps no events",
    "data_dir": "the store gets the folder also where it keeps nothing there",
    "region": "the flusher gets its origin also where nothing is written",
    "api_key_header": "the header is looked for also where no key can be known",
    "on_unknown_identity": "an identity gets it also where nothing is on record",
    "events_file": "whether there is a spool is asked before whether events are on",
    "kafka_brokers": "whether there is a spool is asked before whether events are on",
    "archive_daily": "no is what happens without a database",
    "region_urls": "the store gets the other regions also where there are none",
    "gossip_seconds": "the store gets the time also where there are no other regions",
}
READ_FOR_NOTHING: Final = {
    # A process that does not lead has a token and a file all the same.
    Role.DECISIONS: {"admin_token", "rules_file"},
    # The admin API explains decisions with a whole limiter, as a service has one that decides.
    Role.ADMIN: {
        *("service_token", "tls_cert", "tls_key", "tls_client_ca", "connections", "header_limit", "header_seconds"),
        *("body_limit", "body_seconds", "on_no_rules", "flush_seconds", "workers", "notice_seconds", "drain_seconds"),
    },
}
"""What is read in a role although it changes nothing."""
NO_WITHOUT_A_DATABASE: Final = {"archive_daily", "backup_daily"}
"""They are off, and nothing reads them: what they say is what happens."""


class _Reads(set[str]):
    """The names of the settings that were read."""


class Watched(Settings):
    """Settings that note which of them are read."""

    __slots__ = ()
    reads: Final = _Reads()

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 (any setting)
        if name in Settings.__dataclass_fields__:
            Watched.reads.add(name)
        return super().__getattribute__(name)


class Configuration(NamedTuple):
    has_database: bool
    has_redis: bool


CONFIGURATIONS: Final = [Configuration(*each) for each in ((False, False), (False, True), (True, False), (True, True))]


@pytest.fixture(params=CONFIGURATIONS, ids=str)
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """The plainest settings of one configuration, complete."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    settings = Settings(rules_file=rules, data_dir=tmp_path, port=0, admin_port=0, grpc_port=0, redis_url="memory://")
    if request.param.has_database:
        postgres: Postgres = request.getfixturevalue("postgres")
        settings = replace(settings, rules_file=None, database_url=postgres.new_database())
    if request.param.has_redis:
        valkey: Server = request.getfixturevalue("valkey")
        settings = replace(settings, redis_url=valkey.url)
    return complete(settings)


def read_by_a_service(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Run a whole service, from its start until it listens, and see which settings were read."""
    looked_for_jobs = asyncio.Event()

    def jobs_of(settings: Settings, now: Micros) -> list[schedule.Job]:
        jobs = real_jobs_of(settings, now)
        looked_for_jobs.set()
        return jobs

    async def listening(*parts: Any, **_more: object) -> None:  # noqa: ANN401 (a service and its parts)
        if len(parts) > len(("running", "supervision", "ending")):
            started: Callable[[], None] = parts[3]
            started()
        if (
            settings.database_url is not None and settings.role.administers
        ):  # its jobs are looked at a moment after the start
            async with asyncio.timeout(60):
                await looked_for_jobs.wait()

    real_jobs_of = schedule.jobs_of
    monkeypatch.setattr(schedule, "jobs_of", jobs_of)
    monkeypatch.setattr(serve_processes, "serve_http", listening)
    monkeypatch.setattr(serve_processes, "_until_the_workers_have_ended", listening)
    values = {each.name: getattr(settings, each.name) for each in fields(settings)}
    watched = Watched(**values)
    with ExitStack() as ports:
        Watched.reads.clear()
        where = command._reserved(watched, ports, "http")
        says, ready = (os.open(os.devnull, flags) for flags in (os.O_RDONLY, os.O_WRONLY))
        ports.callback(os.close, says)
        ports.callback(os.close, ready)
        monkeypatch.setattr(serve_processes.Supervision, "__init__", _no_supervision)
        asyncio.run(serve_processes._main(Service(watched, where, None), SupervisorPipes(0, says, ready)))
    return set(Watched.reads)


def _no_supervision(supervision: serve_processes.Supervision, _link: SupervisorPipes) -> None:
    supervision.all_answer = asyncio.Event()


def idle(settings: Settings) -> set[str]:
    """What is said to have no effect if every setting is given."""
    return {each.name for each in idle_settings(settings, {each.name for each in fields(Settings)})}


def test_nothing_is_ignored_in_silence(chosen: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a service does not read is named at its start; what it reads is not, unless that changes nothing."""
    _check_names(chosen, monkeypatch)


@pytest.mark.parametrize("role", [Role.DECISIONS, Role.ADMIN])
def test_nothing_is_ignored_in_any_role(
    role: Role, postgres: Postgres, valkey: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that only decides names what is for the one that administers, and the other way round."""
    where = {"database_url": postgres.new_database(), "redis_url": valkey.url, "data_dir": tmp_path}
    _check_names(Settings(role=role, port=0, admin_port=0, grpc_port=0, **where), monkeypatch)  # type: ignore[arg-type] # texts and a path


def _check_names(chosen: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {each.name for each in fields(Settings)}
    read = read_by_a_service(chosen, monkeypatch) | READ_BY_THE_COMMAND | FOR_COMMANDS
    named = idle(chosen)
    needs_more = {"jwt_issuer", "jwt_audience", "jwt_leeway_seconds", "jwt_user_claim", "jwt_tenant_claim"}
    assert names - read <= named | (NO_WITHOUT_A_DATABASE if chosen.database_url is None else set()), (
        "ignored without a word"
    )
    for_nothing = READ_WITHOUT_EFFECT.keys() | READ_FOR_NOTHING.get(chosen.role, set())
    assert named & read <= for_nothing, "named although it is read"
    assert needs_more <= named


@pytest.mark.parametrize(
    "more",
    [
        {"events": False},
        {"kafka_brokers": "127.0.0.1:9"},
        {"jwt_algorithms": ("HS256",), "jwt_key": "0123456789abcdef0123456789abcdef"},
        {"archive_daily": True, "archive_url": "s3://bucket/folder"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_has_an_effect_depends_on_other_settings(chosen: Settings, more: dict[str, Any]) -> None:
    """Switches bring settings to life, or take their effect away."""
    by_switch = {
        "events": {"denial_events_per_minute", "events_per_minute", "spool_limit", "events_file", "kafka_brokers"},
        "kafka_brokers": {"kafka_topic", "spool_limit", "events_per_minute", "denial_events_per_minute", "region"},
        "jwt_algorithms": {"jwt_issuer", "jwt_audience", "jwt_leeway_seconds", "jwt_user_claim", "jwt_tier_claim"},
        "archive_daily": {"archive_url", "archive_days", "archive_years", "s3_endpoint"},
    }
    switch = next(iter(more))
    concerned, named = by_switch[switch], idle(replace(chosen, **more))
    if switch == "events" or (switch == "archive_daily" and chosen.database_url is None):
        assert concerned <= named
    else:
        assert not concerned & named


def test_a_service_without_what_others_have_in_common_is_complete(chosen: Settings) -> None:
    """On a database and Redis, only what another setting switches on, or is for applications, is without effect."""
    waiting = {"rules_owner", "kafka_topic", "archive_url", "archive_days", "archive_years", "s3_endpoint"}
    waiting |= {"backup_keep", "enabled", "region_urls", "gossip_seconds"}
    tokens = {each.name for each in fields(Settings) if each.name.startswith("jwt_")}
    if chosen.database_url is not None and not (chosen.redis_url or "").startswith("memory:"):
        assert idle(chosen) - waiting - tokens == set()
    else:
        assert idle(chosen) - waiting - tokens


def test_the_owner_of_a_file_is_for_a_database(chosen: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both it is read, and its rules are owned by it; without either it is named."""
    rules = chosen.data_dir / "rules.yaml"
    with_file = replace(chosen, rules_file=rules, rules_owner="platform")
    has_database = chosen.database_url is not None
    assert ("rules_owner" in idle(with_file)) is not has_database
    assert "rules_owner" in idle(replace(chosen, rules_file=None))
    if has_database:
        assert "rules_owner" in read_by_a_service(with_file, monkeypatch)
        assert owners(chosen.database_url or "") == {"platform"}


def owners(url: str) -> set[str | None]:
    """Who owns rules in a database."""

    async def ask() -> set[str | None]:
        database = Database(url)
        try:
            return {
                row["owner"] for row in await database.rows("rules.list", None, 50, None, None, None, None, None, None)
            }
        finally:
            await database.close()

    return asyncio.run(ask())
