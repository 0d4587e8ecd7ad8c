"""From settings to an `Identity`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import cpu_wait_seconds, monotonic
from headgate.adapters.jwks_document import jwks_at
from headgate.core.units import SECOND
from headgate.dataplane.identity import Identity
from headgate.dataplane.jwt_keys import KeySet, OneKey, check_algorithms, key_from_text
from headgate.dataplane.jwt_verifier import Demands, JwtVerifier
from headgate.dataplane.proxies import Proxies
from headgate.dataplane.record_cache import SharedRecords
from headgate.dataplane.records import MEGABYTE, Records
from headgate.errors import InvalidSettings
from headgate.setting_values import OnUnknownIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.units import Micros
    from headgate.ports import Cache, RecordSource
    from headgate.settings import Settings

_TOKENS: Final = "HEADGATE_JWT_ALGORITHMS"


def identity_from(
    settings: Settings, records: RecordSource | None, cache: Cache | None, clock: Callable[[], Micros]
) -> Identity:
    """Who is asking, by the settings; `InvalidSettings` if tokens could not be verified safely by them."""
    return Identity(
        clock,
        tokens=_verifier(settings, clock),
        records=None if records is None else _records(settings, records, cache, clock),
        proxies=Proxies(settings.trusted_proxies),
        api_key_header=settings.api_key_header,
        on_unknown=settings.on_unknown_identity,
        on_foreign_key=settings.on_foreign_api_key,
    )


def _records(settings: Settings, source: RecordSource, cache: Cache | None, clock: Callable[[], Micros]) -> Records:
    keeps = settings.on_unknown_identity is OnUnknownIdentity.LAST_KNOWN
    shared = None if cache is None else SharedRecords(cache, clock, keeps_last_known=keeps)
    max_bytes = settings.record_cache_mb * MEGABYTE
    return Records(source, shared, _steady, max_bytes=max_bytes, keeps_last_known=keeps, kept_waiting=cpu_wait_seconds)


def _steady() -> Micros:
    """A clock that never steps back."""
    return int(monotonic() * SECOND)


def _verifier(settings: Settings, clock: Callable[[], Micros]) -> JwtVerifier | None:
    algorithms, key, url = settings.jwt_algorithms, settings.jwt_key, settings.jwt_jwks_url
    if not algorithms:
        if key or url:
            msg = f"there is a key for tokens, but {_TOKENS} is not set; name the algorithm they are signed with"
            raise InvalidSettings(msg)
        return None
    if (key is None) == (url is None):
        msg = f"{_TOKENS} needs either HEADGATE_JWT_KEY or HEADGATE_JWT_JWKS_URL; set one of the two"
        raise InvalidSettings(msg)
    check_algorithms(algorithms, key_set=url is not None)
    demands = Demands(
        algorithms,
        settings.jwt_issuer,
        settings.jwt_audience,
        round(settings.jwt_leeway_seconds * SECOND),
        settings.jwt_user_claim,
        settings.jwt_tenant_claim,
        settings.jwt_tier_claim,
    )
    if key is not None:
        return JwtVerifier(OneKey(key_from_text(key, algorithms)), demands, clock)
    return JwtVerifier(KeySet(jwks_at(url or ""), algorithms, _steady), demands, clock)
