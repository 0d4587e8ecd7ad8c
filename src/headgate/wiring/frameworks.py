"""From what an application says to the parts of its middleware."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headgate.adapters.clock import wall_clock
from headgate.core.address import parse_network
from headgate.dataplane.identity import Identity
from headgate.dataplane.proxies import Proxies
from headgate.edge.frameworks.blocking_identity import BlockingIdentity
from headgate.edge.frameworks.workers import ONE_EACH, workers_of
from headgate.errors import InvalidSettings
from headgate.settings import from_environment, web_concurrency

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.settings import Settings


class Credentials(NamedTuple):
    """Who is asking, by what is set in the environment; and whose word on addresses counts."""

    identity: Identity
    proxies: Proxies


class CredentialsForThreads(NamedTuple):
    """The same, for applications without an event loop."""

    identity: Identity | BlockingIdentity
    proxies: Proxies


def credentials(trusted_proxies: Iterable[str] | None) -> Credentials:
    """As `HEADGATE_JWT_…` and `HEADGATE_TRUSTED_PROXIES` say; the application's own proxies come before the latter."""
    settings = _settings(trusted_proxies)
    return Credentials(_identity(settings), Proxies(settings.trusted_proxies))


def credentials_for_threads(trusted_proxies: Iterable[str] | None) -> CredentialsForThreads:
    """As `credentials`; an issuer's keys are fetched on a loop in the background."""
    settings = _settings(trusted_proxies)
    proxies = Proxies(settings.trusted_proxies)
    identity = _identity(settings)  # now, so that what is wrong with the settings is said now
    if settings.jwt_jwks_url is None:
        return CredentialsForThreads(identity, proxies)
    return CredentialsForThreads(BlockingIdentity(lambda: _identity(settings), _by_address(settings)), proxies)


def _settings(trusted_proxies: Iterable[str] | None) -> Settings:
    settings = from_environment()
    if trusted_proxies is not None:
        try:
            networks = tuple(map(parse_network, trusted_proxies))
        except ValueError as error:
            msg = f"trusted_proxies: {error}"
            raise InvalidSettings(msg) from None
        settings = replace(settings, trusted_proxies=networks)
    return settings


def _identity(settings: Settings) -> Identity:
    if not (settings.jwt_algorithms or settings.jwt_key or settings.jwt_jwks_url):
        return _by_address(settings)
    try:
        from headgate.wiring.identity import identity_from  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "tokens need PyJWT, which is not installed: pip install 'headgate[server]'"
        raise InvalidSettings(msg) from error
    return identity_from(settings, None, None, wall_clock)


def _by_address(settings: Settings) -> Identity:
    return Identity(wall_clock, proxies=Proxies(settings.trusted_proxies), api_key_header=settings.api_key_header)


def check_workers() -> None:
    """Refuse a store in this process if there are other processes beside it, as far as can be seen."""
    if max(workers_of(sys.argv), web_concurrency()) > 1:
        raise InvalidSettings(ONE_EACH)
