"""From what an application says to the parts of its middleware."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.clock import wall_clock
from headgate.core.address import parse_network
from headgate.dataplane.identity import Identity
from headgate.dataplane.proxies import Proxies
from headgate.edge.frameworks.gate import ONE_EACH, workers_of
from headgate.errors import InvalidSettings
from headgate.setting_effects import idle_settings, in_words
from headgate.settings import from_environment, given_settings, web_concurrency

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.dataplane.limiter import Limiter
    from headgate.edge.frameworks.options import Setup
    from headgate.edge.frameworks.threads import BlockingIdentity
    from headgate.settings import Settings


log = logging.getLogger("headgate")

_READ_HERE: Final = frozenset(
    {
        *("api_key_header", "on_unknown_identity", "on_foreign_api_key", "record_cache_mb", "on_no_rules"),
        *("jwt_issuer", "jwt_audience", "jwt_leeway_seconds"),
        *("jwt_user_claim", "jwt_tenant_claim", "jwt_tier_claim"),
    }
)
"""Settings that an application reads, and that have an effect only beside others. All others are for the service."""


class Credentials(NamedTuple):
    """Who is asking, by what is set in the environment; and whose word on addresses counts."""

    identity: Identity
    proxies: Proxies


class CredentialsForThreads(NamedTuple):
    """The same, for applications without an event loop."""

    identity: Identity | BlockingIdentity
    proxies: Proxies


class Central(NamedTuple):
    """A control plane that an application belongs to, and the limiter that it speaks to there."""

    database_url: str
    redis_url: str
    limiter: Limiter
    takes_rules: bool
    """Whether its rules hold, since the application has none of its own."""


def central(database_url: str | None, store: object, limiter: Limiter, rules: object) -> Central | None:
    """The control plane at `database_url`, or, for counters on Redis, at `HEADGATE_DATABASE_URL`; None without one."""
    is_redis = False
    if isinstance(store, str) and not store.startswith("memory:"):
        from headgate.adapters.redis import is_redis_url  # noqa: PLC0415 (counters in memory need no Redis)

        is_redis = is_redis_url(store)
    if database_url is None:
        database_url = from_environment().database_url
        if database_url is not None and not is_redis:
            log.warning("HEADGATE_DATABASE_URL has no effect on this application: its counters are not on redis://…")
            return None
    if database_url is None:
        return None
    if not is_redis:
        msg = "database_url needs counters on redis://…, since changes to users, keys and rules are announced there"
        raise InvalidSettings(msg)
    return Central(database_url, str(store), limiter, rules is None)


def credentials(trusted_proxies: Iterable[str] | None, at: Central | None = None) -> Credentials:
    """As `HEADGATE_JWT_…` and `HEADGATE_TRUSTED_PROXIES` say; the application's own proxies come before the latter."""
    settings = _settings(trusted_proxies, at)
    return Credentials(_identity(settings, at), Proxies(settings.trusted_proxies))


def credentials_for_threads(trusted_proxies: Iterable[str] | None, at: Central | None = None) -> CredentialsForThreads:
    """As `credentials`; whatever has to be waited for is on a loop in the background."""
    settings = _settings(trusted_proxies, at)
    proxies = Proxies(settings.trusted_proxies)
    identity = _identity(settings, at)  # now, so that what is wrong with the settings is said now
    if settings.jwt_jwks_url is None and at is None:
        return CredentialsForThreads(identity, proxies)
    from headgate.edge.frameworks.threads import BlockingIdentity  # noqa: PLC0415 (an event loop of its own, for few)

    near = _by_address(settings)
    return CredentialsForThreads(
        BlockingIdentity(lambda: _identity(settings, at), near, has_records=at is not None), proxies
    )


def _settings(trusted_proxies: Iterable[str] | None, at: Central | None) -> Settings:
    settings = from_environment()
    here = replace(settings, database_url=None if at is None else at.database_url)
    if idle := idle_settings(here, given_settings() & _READ_HERE):
        log.warning("settings without effect on this application: %s", in_words(idle))
    if trusted_proxies is not None:
        try:
            networks = tuple(map(parse_network, trusted_proxies))
        except ValueError as error:
            msg = f"trusted_proxies: {error}"
            raise InvalidSettings(msg) from None
        settings = replace(settings, trusted_proxies=networks)
    return settings


def _identity(settings: Settings, at: Central | None) -> Identity:
    if at is None and not (settings.jwt_algorithms or settings.jwt_key or settings.jwt_jwks_url):
        return _by_address(settings)
    try:
        from headgate.wiring.identity import identity_from  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "tokens and API keys need PyJWT, which is not installed: pip install 'headgate[server]'"
        raise InvalidSettings(msg) from error
    if at is None:
        return identity_from(settings, None, None, wall_clock)
    from headgate.wiring.application import central_identity  # noqa: PLC0415 (a control plane is optional)

    settings = replace(settings, database_url=at.database_url, redis_url=at.redis_url)
    return central_identity(settings, at.limiter, takes_rules=at.takes_rules)


def _by_address(settings: Settings) -> Identity:
    return Identity(wall_clock, proxies=Proxies(settings.trusted_proxies), api_key_header=settings.api_key_header)


def with_settings(setup: Setup) -> Setup:
    """What an application says; `HEADGATE_ENABLED` and `HEADGATE_RESET_HEADER` where it does not say it."""
    settings = from_environment()
    unsaid = [name for name in ("enabled", "reset_header") if getattr(setup, name) is None]
    return replace(setup, **{name: getattr(settings, name) for name in unsaid})


def check_workers() -> None:
    """Refuse a store in this process if there are other processes beside it, as far as can be seen."""
    if max(workers_of(sys.argv), web_concurrency()) > 1:
        raise InvalidSettings(ONE_EACH)
