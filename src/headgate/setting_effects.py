"""Settings and fields of rules that have no effect as a service is configured: none is ignored without a word.

A setting that decides who a caller is, or what is kept, is refused, because an operator who sets it relies on it;
the others, and those that repeat their default, get a warning. What is not listed here has an effect in every
configuration, or is for commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.rule import Rule
from headgate.core.spread import SpreadMode
from headgate.setting_values import Role
from headgate.settings import Settings, variable_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from headgate.core.rule import RuleSet

_NO_DATABASE: Final = "there is no database; set HEADGATE_DATABASE_URL"
_NO_TOKENS: Final = "no token is verified; set HEADGATE_JWT_ALGORITHMS to what tokens are signed with"
_MEMORY: Final = "the counters are in memory, where no check waits and nothing fails; it is for HEADGATE_REDIS_URL"
_NOT_KEPT: Final = "no events are kept; set HEADGATE_DATABASE_URL, HEADGATE_KAFKA_BROKERS or HEADGATE_EVENTS_FILE"
_EVENTS_OFF: Final = "HEADGATE_EVENTS is no; set it to yes"
_NO_ARCHIVING: Final = "the service archives nothing; set HEADGATE_ARCHIVE_DAILY=yes, or run 'headgate archive'"


_WITH_REPLICAS: Final = ("redis+sentinel:", "rediss+sentinel:", "redis+cluster:", "rediss+cluster:")


class IdleSetting(NamedTuple):
    """A setting without effect."""

    name: str
    reason: str
    """Why, and what to do."""
    is_refused: bool = False
    """Whether the service must not start with it."""


def _needs_database(settings: Settings) -> str | None:
    return _NO_DATABASE if settings.database_url is None else None


def _needs_own_database(settings: Settings) -> str | None:
    if (settings.database_url or "").startswith("embedded:"):
        return "the embedded database keeps no log to go back in; use a server of your own, or HEADGATE_BACKUP_DAILY"
    return _needs_database(settings)


def _needs_file_and_database(settings: Settings) -> str | None:
    if settings.rules_file is None:
        return "there is no rules file; set HEADGATE_RULES_FILE"
    return _needs_database(settings)


def _needs_a_reader_of_rules(settings: Settings) -> str | None:
    if settings.role is Role.DECISIONS and settings.database_url is not None:
        return "rules come from the database; give the file to the service with the role admin"
    return None


def _needs_tokens(settings: Settings) -> str | None:
    return None if settings.jwt_algorithms else _NO_TOKENS


def _needs_server(settings: Settings) -> str | None:
    return _MEMORY if (settings.redis_url or "").startswith("memory:") else None


def _needs_replicas(settings: Settings) -> str | None:
    """Of whether replicas may be read: 'no' is what happens without any."""
    if not settings.peek_replicas or (settings.redis_url or "").startswith(_WITH_REPLICAS):
        return None
    return "only Sentinel and Cluster name replicas; it is for redis+sentinel:// and redis+cluster://"


def _needs_events(settings: Settings) -> str | None:
    if not settings.events:
        return _EVENTS_OFF
    sinks = (settings.database_url, settings.kafka_brokers, settings.events_file)
    return _NOT_KEPT if sinks == (None, None, None) else None


def _needs_events_on(settings: Settings) -> str | None:
    return None if settings.events else _EVENTS_OFF


def _needs_region(settings: Settings) -> str | None:
    if settings.region is None:
        return "this process is of no region; set HEADGATE_REGION"
    return _needs_server(settings)


def _needs_other_regions(settings: Settings) -> str | None:
    return None if settings.region_urls else "no other region is known; set HEADGATE_REGION_URLS"


def _needs_region_readers(settings: Settings) -> str | None:
    if settings.region_urls:
        return None
    # The database also has the list of processes, with their regions.
    return None if settings.database_url is not None else _needs_events(settings)


def _needs_kafka(settings: Settings) -> str | None:
    if settings.kafka_brokers is None:
        return "no events are sent to Kafka; set HEADGATE_KAFKA_BROKERS"
    return _needs_events_on(settings)


def _needs_usage(settings: Settings) -> str | None:
    return _needs_database(settings) or _needs_events_on(settings)


def _needs_archiving(settings: Settings) -> str | None:
    writes = settings.archive_daily or settings.backup_daily
    return _needs_database(settings) or (None if writes else _NO_ARCHIVING)


def _needs_s3(settings: Settings) -> str | None:
    if not (settings.archive_url or "").startswith("s3:"):
        return "archives are not on S3; set HEADGATE_ARCHIVE_URL to s3://bucket/folder"
    return _needs_archiving(settings)


def _needs_archive(settings: Settings) -> str | None:
    """Of whether to archive at all: 'no' is what happens without a database."""
    return _needs_database(settings) if settings.archive_daily else None


def _needs_backup(settings: Settings) -> str | None:
    """Of whether to make backups at all: 'no' is what happens without a database."""
    return _needs_database(settings) if settings.backup_daily else None


def _needs_backups(settings: Settings) -> str | None:
    makes = settings.backup_daily or settings.base_backup_folder is not None
    reason = "the service makes no backups; set HEADGATE_BACKUP_DAILY=yes or HEADGATE_BASE_BACKUP_FOLDER"
    return _needs_database(settings) or (None if makes else reason)


def _needs_a_folder(settings: Settings) -> str | None:
    if "embedded:" in f"{settings.redis_url} {settings.database_url}" or settings.database_url is not None:
        return None
    reason = _needs_events(settings)
    return None if reason is None else f"nothing is written to disk: {reason}"


def keeps_data(settings: Settings) -> bool:
    """Whether a service with these settings writes to its data directory."""
    return _needs_a_folder(settings) is None


def _needs_an_application(settings: Settings) -> str | None:
    del settings
    return "it is for the middleware of applications, and the service always limits; give a rule 'enabled: false'"


_REFUSED: Final[Mapping[str, Callable[[Settings], str | None]]] = {
    "enabled": _needs_an_application,
    "api_key_header": _needs_database,
    "on_unknown_identity": _needs_database,
    "archive_daily": _needs_archive,
    "backup_daily": _needs_backup,
    "base_backup_folder": _needs_own_database,
    "jwt_issuer": _needs_tokens,
    "jwt_audience": _needs_tokens,
    "jwt_user_claim": _needs_tokens,
    "jwt_tenant_claim": _needs_tokens,
    "jwt_tier_claim": _needs_tokens,
}
_WARNED_OF: Final[Mapping[str, Callable[[Settings], str | None]]] = {
    "record_cache_mb": _needs_database,
    "jwt_leeway_seconds": _needs_tokens,
    "rules_file": _needs_a_reader_of_rules,
    "rules_owner": _needs_file_and_database,
    "admin_host": _needs_database,
    "admin_port": _needs_database,
    "admin_token": _needs_database,
    "on_no_rules": _needs_database,
    "deny_cache_mb": _needs_server,
    "peek_replicas": _needs_replicas,
    "overload_seconds": _needs_server,
    "rls_on_overload": _needs_server,
    "data_dir": _needs_a_folder,
    "region": _needs_region_readers,
    "region_urls": _needs_region,
    "gossip_seconds": _needs_other_regions,
    "denial_events_per_minute": _needs_events,
    "events_per_minute": _needs_events,
    "spool_limit": _needs_events,
    "events_file": _needs_events_on,
    "kafka_brokers": _needs_events_on,
    "kafka_topic": _needs_kafka,
    "usage_users_per_day": _needs_usage,
    "metrics_months": _needs_database,
    "metrics_users": _needs_usage,
    "archive_url": _needs_archiving,
    "backup_keep": _needs_backups,
    "archive_days": _needs_archiving,
    "archive_years": _needs_archiving,
    "s3_endpoint": _needs_s3,
}
# Services of both roles often have one file of settings, so these are named and not refused.
_OF_OTHER_ROLES: Final[Mapping[Role, tuple[str, tuple[str, ...]]]] = {
    Role.ALL: ("", ()),
    Role.DECISIONS: (
        "it is for the service with the role admin, and this one has the role decisions",
        (
            *("admin_host", "admin_port", "admin_token", "rules_owner", "archive_daily", "backup_daily"),
            *("base_backup_folder", "backup_keep", "archive_url", "archive_days", "archive_years", "s3_endpoint"),
            "metrics_months",
        ),
    ),
    Role.ADMIN: (
        "it is for services with the role decisions, and this one has the role admin",
        (
            *("host", "port", "grpc_host", "grpc_port", "rls_on_overload", "workers", "service_token", "tls_cert"),
            *("tls_key", "tls_client_ca", "connections", "header_limit", "header_seconds", "body_limit"),
            *("body_seconds", "overload_seconds", "notice_seconds", "drain_seconds", "deny_cache_mb", "on_no_rules"),
            *("denial_events_per_minute", "events_per_minute", "usage_users_per_day", "events_file", "kafka_brokers"),
            *("kafka_topic", "flush_seconds", "spool_limit", "metrics_users"),
        ),
    ),
}
_DEFAULTS: Final = Settings()
_GRPC: Final = ("grpc_host", "grpc_port", "rls_on_overload")


def idle_settings(settings: Settings, given: Collection[str], *, has_grpc: bool = True) -> list[IdleSetting]:
    """Which of the settings that were `given` have no effect on a service with these settings, which are complete.

    `has_grpc` says whether Envoy's rate-limit service can be run.
    """
    found: dict[str, IdleSetting] = {}
    for is_refused, table in ((True, _REFUSED), (False, _WARNED_OF)):
        for name, needs in table.items():
            reason = needs(settings) if name in given else None
            if reason is not None:
                # Files of settings often list all of them: one that repeats its default misleads no one.
                is_usual = getattr(settings, name) == getattr(_DEFAULTS, name)
                found[name] = IdleSetting(name, reason, is_refused and not is_usual)
    reason, names = _OF_OTHER_ROLES[settings.role]
    found |= {name: IdleSetting(name, reason) for name in names if name in given}
    if not has_grpc:
        reason = "Envoy's rate-limit service does not run; pip install 'headgate[grpc]'"
        found |= {name: IdleSetting(name, reason) for name in _GRPC if name in given}
    return list(found.values())


def in_words(idle: Iterable[IdleSetting]) -> str:
    """Settings and why they have no effect, in one line."""
    return "; ".join(f"{variable_of(each.name)} ({each.reason})" for each in idle)


_RULE_FIELDS: Final[Mapping[str, Callable[[Settings], str | None]]] = {
    "on_store_error": _needs_server,
    "on_overload": _needs_server,
    "wait_replicas": _needs_server,
    "on_shortfall": _needs_server,
    "sample": _needs_events,
}
_USUAL: Final = Rule("")
_MAX_NAMED: Final = 5
_SEVERAL_SERVERS: Final = ("redis+cluster:", "rediss+cluster:", "redis+ring:", "rediss+ring:")


def _needs_several_servers(settings: Settings) -> str | None:
    if (settings.redis_url or "").startswith(_SEVERAL_SERVERS):
        return None
    return "shards are on different servers, and the counters are on one; it is for redis+cluster:// and redis+ring://"


_SPREADS: Final[Mapping[SpreadMode, Callable[[Settings], str | None]]] = {
    SpreadMode.LEASED: _needs_server,
    SpreadMode.AUTO: _needs_server,
    SpreadMode.SHARDS: _needs_several_servers,
}


def idle_rule_fields(rule_set: RuleSet, settings: Settings) -> list[str]:
    """A sentence for each field that some rules have and that has no effect on a service with these settings."""
    found: list[tuple[str, list[str], str | None]] = []
    for field, needs in _RULE_FIELDS.items():
        usual = getattr(_USUAL, field)
        found.append((field, [rule.name for rule in rule_set.rules if getattr(rule, field) != usual], needs(settings)))
    for mode, needs in _SPREADS.items():
        found.append(("spread", [rule.name for rule in rule_set.rules if rule.spread.mode is mode], needs(settings)))
    sentences = []
    for field, names, reason in found:
        if names and reason is not None:
            more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            sentences.append(f"{field} of {', '.join(names[:_MAX_NAMED])}{more} has no effect: {reason}")
    return sentences
