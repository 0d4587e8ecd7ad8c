"""Every setting: its name, default, meaning, and how its text is read. `headgate.settings` reads the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.setting_values import (
    LogFormat,
    LogLevel,
    Network,
    OnForeignApiKey,
    OnNoRules,
    OnUnknownIdentity,
    ResetHeader,
    RlsOnOverload,
    Role,
    address,
    address_with_user,
    names,
    names_up_to,
    networks,
    one_of,
    region_urls,
    seconds,
    short_text,
    text_value,
    whole,
    yes_or_no,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_DATA_DIR: Final = Path(".headgate")


def _about(meaning: str, read: Callable[[str], object], *, secret: bool = False) -> dict[str, Any]:
    return {"meaning": meaning, "read": read, "secret": secret}


_POSITIVE: Final = whole(1, 1_000_000_000)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, with their defaults."""

    redis_url: str | None = field(default=None, metadata=_about("where the counters are kept", text_value, secret=True))
    data_dir: Path = field(
        default=DEFAULT_DATA_DIR, metadata=_about("the folder in which embedded servers keep their data", Path)
    )
    deny_cache_mb: int = field(
        default=16, metadata=_about("how much memory each process has for known denials; 0 is none", whole(0, 65_536))
    )
    peek_replicas: bool = field(
        default=False, metadata=_about("whether peeks, explain and quota may read replicas", yes_or_no)
    )
    rules_file: Path | None = field(default=None, metadata=_about("the YAML file with the rules", Path))
    rules_owner: str | None = field(
        default=None, metadata=_about("the owner of the file's rules in the database", short_text(255))
    )
    enabled: bool = field(default=True, metadata=_about("whether applications limit calls at all", yes_or_no))
    # Exempting every caller because a server is unavailable is a choice that the operator has to make.
    on_no_rules: OnNoRules = field(
        default=OnNoRules.DENY,
        metadata=_about("what is answered while no rule set is known: 503, or every request passes", one_of(OnNoRules)),
    )
    # The service believes what callers state about users, so without further thought only this machine may call it.
    host: str = field(
        default="127.0.0.1", metadata=_about("the address to listen on; 0.0.0.0 is every network", text_value)
    )
    port: int = field(default=8080, metadata=_about("the port to listen on; 0 is any free one", whole(0, 65_535)))
    role: Role = field(
        default=Role.ALL, metadata=_about("whether this service decides, administers, or does both", one_of(Role))
    )
    workers: int = field(default=1, metadata=_about("how many processes answer", whole(1, 256)))
    log_level: LogLevel = field(
        default=LogLevel.INFO, metadata=_about("from how important on something is logged", one_of(LogLevel))
    )
    body_limit: int = field(
        default=65_536, metadata=_about("the largest request body, in bytes", whole(1, 16 * 1024 * 1024))
    )
    body_seconds: float = field(
        default=5.0, metadata=_about("how long a caller may take to send a request's body", seconds(600))
    )
    header_limit: int = field(
        default=65_536, metadata=_about("the largest request head, in bytes", whole(8_192, 1024 * 1024))
    )
    # Longer than gateways keep idle connections (60 s is usual), so that it is they who close, and none sends
    # a request into a connection that is just closing.
    header_seconds: float = field(
        default=75.0,
        metadata=_about("how long a connection may be idle, or take to send a request's head", seconds(600)),
    )
    connections: int = field(
        default=16_384, metadata=_about("how many connections each process has open at once", whole(1, 1_000_000))
    )
    overload_seconds: float = field(
        default=1.0,
        metadata=_about("how long a check may wait while too many are in flight; then it is answered 503", seconds(60)),
    )
    notice_seconds: float = field(
        default=3.0, metadata=_about("after SIGTERM, how long to go on answering while /readyz says 503", seconds(600))
    )
    drain_seconds: float = field(
        default=10.0, metadata=_about("after that, how long requests in flight may take to end", seconds(600))
    )
    reset_header: ResetHeader = field(
        default=ResetHeader.NEXT,
        metadata=_about("what X-RateLimit-Reset says: when there is more, or all", one_of(ResetHeader)),
    )
    service_token: str | None = field(
        default=None, metadata=_about("a token that callers of the service must send", text_value, secret=True)
    )
    tls_cert: Path | None = field(default=None, metadata=_about("the certificate of the service (PEM)", Path))
    tls_key: Path | None = field(default=None, metadata=_about("the private key that goes with it (PEM)", Path))
    tls_client_ca: Path | None = field(
        default=None, metadata=_about("who must have signed the certificates of callers (PEM)", Path)
    )
    url: str = field(
        default="http://127.0.0.1:8080", metadata=_about("the service that `headgate check` asks", address)
    )

    grpc_host: str = field(
        default="127.0.0.1", metadata=_about("the address that Envoy's rate-limit service listens on", text_value)
    )
    grpc_port: int = field(
        default=8082,
        metadata=_about("the port that Envoy's rate-limit service listens on; 0 is any free one", whole(0, 65_535)),
    )
    rls_on_overload: RlsOnOverload = field(
        default=RlsOnOverload.UNAVAILABLE,
        metadata=_about("what Envoy is told when too many checks are in flight", one_of(RlsOnOverload)),
    )

    # The control plane
    database_url: str | None = field(
        default=None, metadata=_about("where rules, tiers, users, keys and blocks are kept", text_value, secret=True)
    )
    admin_host: str = field(default="127.0.0.1", metadata=_about("the address the admin API listens on", text_value))
    admin_port: int = field(
        default=8081, metadata=_about("the port the admin API listens on; 0 is any free one", whole(0, 65_535))
    )
    admin_token: str | None = field(
        default=None,
        metadata=_about("a token with the role admin, for the API and for commands", text_value, secret=True),
    )
    admin_url: str | None = field(default=None, metadata=_about("the admin API that commands ask", address))

    # What happened
    region: str | None = field(
        default=None,
        metadata=_about(
            "the name of the region, in events and metrics, and for rules that regions share", short_text(64)
        ),
    )
    region_urls: tuple[tuple[str, str], ...] = field(
        default=(), metadata=_about("the stores of the other regions, which share limits", region_urls, secret=True)
    )
    gossip_seconds: float = field(
        default=1.0, metadata=_about("how often regions exchange their counts, for rules with gossip", seconds(60))
    )
    events: bool = field(default=True, metadata=_about("whether what happens is recorded", yes_or_no))
    denial_events_per_minute: int = field(
        default=10,
        metadata=_about("how many denials of one caller by one rule become events before they are sampled", _POSITIVE),
    )
    events_per_minute: int = field(
        default=1_000,
        metadata=_about("how many denials, and how many admissions, become events before they are sampled", _POSITIVE),
    )
    usage_users_per_day: int = field(
        default=1_000_000, metadata=_about("how many users have usage of their own each day", _POSITIVE)
    )
    metrics_months: int = field(
        default=84, metadata=_about("after how many months counts are deleted", whole(1, 1_200))
    )
    metrics_users: tuple[str, ...] = field(
        default=(), metadata=_about("users whose counts are also kept by endpoint, at most 50", names_up_to(50))
    )
    events_file: Path | None = field(
        default=None, metadata=_about("a file that events are appended to, as JSON lines", Path)
    )
    kafka_brokers: str | None = field(
        default=None, metadata=_about("where events are sent to as well", text_value, secret=True)
    )
    kafka_topic: str = field(default="headgate.events", metadata=_about("the topic of events", text_value))
    flush_seconds: float = field(
        default=0.5, metadata=_about("how long an event may wait in memory before it is on disk", seconds(60))
    )
    spool_limit: int = field(
        default=2**30,
        metadata=_about(
            "how many bytes of events each process keeps on disk while a sink is unavailable", whole(2**20, 2**50)
        ),
    )
    # Archived events are dropped from the database, so the operator has to ask for it.
    archive_daily: bool = field(
        default=False, metadata=_about("whether the service archives old events, once a day", yes_or_no)
    )
    backup_daily: bool = field(
        default=False, metadata=_about("whether the service makes a backup, once a day", yes_or_no)
    )
    base_backup_folder: Path | None = field(
        default=None, metadata=_about("where the service puts a base backup of PostgreSQL, once a day", Path)
    )
    # What is deleted cannot be restored, so the operator has to ask for this too.
    backup_keep: int | None = field(
        default=None, metadata=_about("how many of the newest daily and base backups are kept", whole(1, 10_000))
    )
    archive_url: str | None = field(
        default=None, metadata=_about("where archives and backups go: a folder, or s3://bucket/folder", text_value)
    )
    archive_days: int = field(default=90, metadata=_about("after how many days events are archived", whole(1, 3_660)))
    archive_years: int = field(default=7, metadata=_about("after how many years archives are deleted", whole(1, 1_000)))
    s3_endpoint: str | None = field(default=None, metadata=_about("the S3 service, where it is not Amazon's", address))
    log_format: LogFormat = field(default=LogFormat.TEXT, metadata=_about("how the log is written", one_of(LogFormat)))
    otel_endpoint: str | None = field(
        default=None, metadata=_about("where traces are sent to by OTLP over HTTP", address_with_user)
    )

    # Who is asking
    trusted_proxies: tuple[Network, ...] = field(
        default=(), metadata=_about("the proxies whose word on the caller's address counts", networks)
    )
    jwt_algorithms: tuple[str, ...] = field(
        default=(), metadata=_about("the algorithms that a token may be signed with", names)
    )
    jwt_key: str | None = field(
        default=None, metadata=_about("the secret or public key (PEM) of tokens", text_value, secret=True)
    )
    jwt_jwks_url: str | None = field(default=None, metadata=_about("where the public keys of tokens are", text_value))
    jwt_issuer: str | None = field(default=None, metadata=_about("who must have issued a token", text_value))
    jwt_audience: str | None = field(default=None, metadata=_about("whom a token must be for", text_value))
    jwt_leeway_seconds: float = field(
        default=0.0, metadata=_about("how far the clocks of issuers may be off", seconds(600))
    )
    jwt_user_claim: str = field(default="sub", metadata=_about("the claim that names the user", text_value))
    jwt_tenant_claim: str | None = field(default=None, metadata=_about("the claim that names the tenant", text_value))
    jwt_tier_claim: str | None = field(default=None, metadata=_about("the claim that names the tier", text_value))
    api_key_header: str = field(default="X-API-Key", metadata=_about("the header that API keys come in", text_value))
    on_unknown_identity: OnUnknownIdentity = field(
        default=OnUnknownIdentity.LAST_KNOWN,
        metadata=_about("what is assumed of callers whose record cannot be read", one_of(OnUnknownIdentity)),
    )
    # A caller who could choose the name of a counter would have a new one for each request.
    on_foreign_api_key: OnForeignApiKey | None = field(
        default=None,
        metadata=_about("what is counted if a stated API key is none of headgate's", one_of(OnForeignApiKey)),
    )
    record_cache_mb: int = field(
        default=64,
        metadata=_about("megabytes of users and API keys that each process keeps in memory", whole(1, 65_536)),
    )
