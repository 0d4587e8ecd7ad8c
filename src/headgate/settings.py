"""Settings: environment variables named ``HEADGATE_…``, read once, here and nowhere else.

    HEADGATE_RULES_FILE=rules.yaml HEADGATE_PORT=8090 headgate serve

An empty variable is the same as none. A setting that can hold a secret may also be given as
the name of a file that holds it, with ``_FILE`` behind its name (``HEADGATE_REDIS_URL_FILE``).
"""

from __future__ import annotations

import os
from dataclasses import Field, dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from headgate.errors import InvalidSettings, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Network: TypeAlias = IPv4Network | IPv6Network

PREFIX: Final = "HEADGATE_"
DEFAULT_DATA_DIR: Final = Path(".headgate")
_FROM_FILE: Final = "_FILE"


class LogLevel(StrEnum):
    """From how important on something is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


class OnNoRules(StrEnum):
    """What is answered while no rule set is known."""

    DENY = "deny"
    ALLOW = "allow"


def _about(meaning: str, read: Callable[[str], object], *, secret: bool = False) -> dict[str, Any]:
    return {"meaning": meaning, "read": read, "secret": secret}


def _text(text: str) -> str:
    return text


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        msg = f"a whole number from {least} to {most}"
        raise ValueError(msg)

    return read


def _seconds(most: int) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if 0 <= seconds <= most:
            return seconds
        msg = f"a number of seconds from 0 to {most}"
        raise ValueError(msg)

    return read


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(map(ip_network, _names(text)))
    except ValueError:
        msg = "addresses and networks with commas between them, as in 10.0.0.0/8, 192.0.2.7"
        raise ValueError(msg) from None


def _one_of(choices: type[StrEnum]) -> Callable[[str], StrEnum]:
    def read(text: str) -> StrEnum:
        try:
            return choices(text.lower())
        except ValueError:
            msg = f"one of {', '.join(choices)}"
            raise ValueError(msg) from None

    return read


def _yes_or_no(text: str) -> bool:
    if text.lower() not in {"yes", "no"}:
        msg = "yes or no"
        raise ValueError(msg)
    return text.lower() == "yes"


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if good and not parts.query and not parts.fragment:
        return text.rstrip("/")
    msg = "an address such as http://127.0.0.1:8080"
    raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, with what holds if nobody does."""

    redis_url: str | None = field(default=None, metadata=_about("where the counters are kept", _text, secret=True))
    data_dir: Path = field(
        default=DEFAULT_DATA_DIR, metadata=_about("the folder in which embedded servers keep their data", Path)
    )
    rules_file: Path | None = field(default=None, metadata=_about("the YAML file with the rules", Path))
    # Exempting every caller because a server is unavailable is a choice that somebody has to make.
    on_no_rules: OnNoRules = field(
        default=OnNoRules.DENY,
        metadata=_about(
            "what is answered while no rule set is known: 503, or every request passes", _one_of(OnNoRules)
        ),
    )
    # The service believes what callers state about users, so without further thought only this machine may call it.
    host: str = field(default="127.0.0.1", metadata=_about("the address to listen on; 0.0.0.0 is every network", _text))
    port: int = field(default=8080, metadata=_about("the port to listen on; 0 is any free one", _whole(0, 65_535)))
    workers: int = field(default=1, metadata=_about("how many processes answer", _whole(1, 256)))
    log_level: LogLevel = field(
        default=LogLevel.INFO, metadata=_about("from how important on something is logged", _one_of(LogLevel))
    )
    body_limit: int = field(
        default=65_536, metadata=_about("the largest request body, in bytes", _whole(1, 16 * 1024 * 1024))
    )
    body_seconds: float = field(
        default=5.0, metadata=_about("how long a caller may take to send a request's body", _seconds(600))
    )
    header_limit: int = field(
        default=65_536, metadata=_about("the largest request head, in bytes", _whole(8_192, 1024 * 1024))
    )
    # Longer than gateways keep idle connections (60 s is usual), so that it is they who close, and none sends
    # a request into a connection that is just closing.
    header_seconds: float = field(
        default=75.0,
        metadata=_about("how long a connection may be idle, or take to send a request's head", _seconds(600)),
    )
    connections: int = field(
        default=16_384, metadata=_about("how many connections each process has open at once", _whole(1, 1_000_000))
    )
    overload_seconds: float = field(
        default=1.0,
        metadata=_about(
            "how long a check may wait while too many are in flight; then it is answered 503", _seconds(60)
        ),
    )
    notice_seconds: float = field(
        default=3.0, metadata=_about("after SIGTERM, how long to go on answering while /readyz says 503", _seconds(600))
    )
    drain_seconds: float = field(
        default=10.0, metadata=_about("after that, how long requests under way may take to end", _seconds(600))
    )
    service_token: str | None = field(
        default=None, metadata=_about("a token that whoever asks the service must send", _text, secret=True)
    )
    tls_cert: Path | None = field(default=None, metadata=_about("the certificate of the service (PEM)", Path))
    tls_key: Path | None = field(default=None, metadata=_about("the private key that goes with it (PEM)", Path))
    tls_client_ca: Path | None = field(
        default=None, metadata=_about("who must have signed the certificates of callers (PEM)", Path)
    )
    url: str = field(
        default="http://127.0.0.1:8080", metadata=_about("the service that `headgate check` asks", _address)
    )

    grpc_host: str = field(
        default="127.0.0.1", metadata=_about("the address that Envoy's rate-limit service listens on", _text)
    )
    grpc_port: int = field(
        default=8082,
        metadata=_about("the port that Envoy's rate-limit service listens on; 0 is any free one", _whole(0, 65_535)),
    )

    # The control plane
    database_url: str | None = field(
        default=None, metadata=_about("where rules, tiers, users, keys and blocks are kept", _text, secret=True)
    )
    admin_host: str = field(default="127.0.0.1", metadata=_about("the address the admin API listens on", _text))
    admin_port: int = field(
        default=8081, metadata=_about("the port the admin API listens on; 0 is any free one", _whole(0, 65_535))
    )
    admin_token: str | None = field(
        default=None, metadata=_about("a token with the role admin, for the API and for commands", _text, secret=True)
    )
    admin_url: str | None = field(default=None, metadata=_about("the admin API that commands ask", _address))

    # What happened
    region: str | None = field(default=None, metadata=_about("the name of the region, in events and metrics", _text))
    events: bool = field(default=True, metadata=_about("whether what happens is recorded", _yes_or_no))
    events_file: Path | None = field(
        default=None, metadata=_about("a file that events are appended to, as JSON lines", Path)
    )
    kafka_brokers: str | None = field(
        default=None, metadata=_about("where events are sent to as well", _text, secret=True)
    )
    kafka_topic: str = field(default="headgate.events", metadata=_about("the topic of events", _text))
    flush_seconds: float = field(
        default=0.5, metadata=_about("how long an event may wait in memory before it is on disk", _seconds(60))
    )
    spool_limit: int = field(
        default=2**30,
        metadata=_about(
            "how many bytes of events each process keeps on disk while a sink is away", _whole(2**20, 2**50)
        ),
    )
    # What is archived is dropped from the database, and nobody wants that who has not asked for it.
    archive_daily: bool = field(
        default=False, metadata=_about("whether the service archives old events, once a day", _yes_or_no)
    )
    archive_url: str | None = field(
        default=None, metadata=_about("where archives and backups go: a folder, or s3://bucket/folder", _text)
    )
    archive_days: int = field(default=90, metadata=_about("after how many days events are archived", _whole(1, 3_660)))
    archive_years: int = field(
        default=7, metadata=_about("after how many years archives are deleted", _whole(1, 1_000))
    )
    s3_endpoint: str | None = field(default=None, metadata=_about("the S3 service, where it is not Amazon's", _address))
    log_format: LogFormat = field(default=LogFormat.TEXT, metadata=_about("how the log is written", _one_of(LogFormat)))
    otel_endpoint: str | None = field(
        default=None, metadata=_about("where traces are sent to by OTLP over HTTP", _address)
    )

    # Who is asking
    trusted_proxies: tuple[Network, ...] = field(
        default=(), metadata=_about("the proxies whose word on the caller's address counts", _networks)
    )
    jwt_algorithms: tuple[str, ...] = field(
        default=(), metadata=_about("the algorithms that a token may be signed with", _names)
    )
    jwt_key: str | None = field(
        default=None, metadata=_about("the secret or public key (PEM) of tokens", _text, secret=True)
    )
    jwt_jwks_url: str | None = field(default=None, metadata=_about("where the public keys of tokens are", _text))
    jwt_issuer: str | None = field(default=None, metadata=_about("who must have issued a token", _text))
    jwt_audience: str | None = field(default=None, metadata=_about("whom a token must be for", _text))
    jwt_leeway_seconds: float = field(
        default=0.0, metadata=_about("how far the clocks of issuers may be off", _seconds(600))
    )
    jwt_user_claim: str = field(default="sub", metadata=_about("the claim that names the user", _text))
    jwt_tenant_claim: str | None = field(default=None, metadata=_about("the claim that names the tenant", _text))
    jwt_tier_claim: str | None = field(default=None, metadata=_about("the claim that names the tier", _text))
    api_key_header: str = field(default="X-API-Key", metadata=_about("the header that API keys come in", _text))


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Read all settings, or raise `InvalidSettings` naming the variable and what to write in it."""
    environ = os.environ if environ is None else environ
    given: dict[str, Any] = {}
    for each in fields(Settings):
        text = _given(each, environ)
        if text:
            given[each.name] = _read(each, text, _variable(each))
    return Settings(**given)


def for_child(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process: this one's, with some settings changed."""
    return dict(os.environ) | {PREFIX + name.upper(): text for name, text in changes.items()}


def with_options(settings: Settings, options: Mapping[str, str | None]) -> Settings:
    """These settings, with what was given on the command line in place of what it replaces."""
    given = {name: text for name, text in options.items() if text is not None}
    known = {each.name: each for each in fields(Settings)}
    changed: dict[str, Any] = {name: _read(known[name], text, f"--{name}") for name, text in given.items()}
    return replace(settings, **changed)


def _read(each: Field[Any], text: str, source: str) -> object:
    """One setting from its text; `source` is what the message calls it."""
    try:
        return each.metadata["read"](text)
    except ValueError as error:
        wrong = "is malformed" if each.metadata["secret"] else f"is {shown(text)}"
        msg = f"{source} {wrong}; write {error}"
        raise InvalidSettings(msg) from None


def web_concurrency(environ: Mapping[str, str] | None = None) -> int:
    """How many processes the web server was told to run by the variables that such servers read; 1 if by none."""
    environ = os.environ if environ is None else environ
    told = [environ.get(name, "").strip() for name in ("WEB_CONCURRENCY", "GRANIAN_WORKERS")]
    return max(
        (int(text) for text in told if text.isascii() and text.isdigit() and len(text) < len("10000")), default=1
    )


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable that looks like a setting and is none."""
    environ = os.environ if environ is None else environ
    known = [each.name.upper() for each in fields(Settings)]
    known += [each.name.upper() + _FROM_FILE for each in fields(Settings) if each.metadata["secret"]]
    sentences = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in known:
            close = get_close_matches(name.removeprefix(PREFIX), known, 1)
            hint = f"; did you mean {PREFIX}{close[0]}?" if close else ""
            sentences.append(f"{name} is not a setting and is ignored{hint}")
    return sentences


def _variable(each: Field[Any]) -> str:
    return PREFIX + each.name.upper()


def _given(each: Field[Any], environ: Mapping[str, str]) -> str:
    """The text of one setting, from its variable or from the file that its `_FILE` variable names."""
    name = _variable(each)
    text = environ.get(name, "").strip()
    path = environ.get(name + _FROM_FILE, "").strip() if each.metadata["secret"] else ""
    if not path:
        return text
    if text:
        msg = f"{name} and {name}{_FROM_FILE} are both set; keep one of them"
        raise InvalidSettings(msg)
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        msg = f"{name}{_FROM_FILE} names {shown(path)}, which cannot be read: {reason}; write the name of a file"
        raise InvalidSettings(msg) from error
