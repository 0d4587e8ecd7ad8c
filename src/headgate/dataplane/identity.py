"""Identity: the user, tenant and API key of a request, with their tier and own limits.

    verified token ─┐
    API key ────────┼─> user, tenant, key ──> records ──> tier and own limits
    trusted caller ─┘

The first of them counts. A token that is not valid, or a key that is malformed, unknown, revoked or
expired, proves nothing: its bearer is counted by address, like all unknown callers. It never gets a
counter of its own, or inventing keys would be a way around every limit.

If a record cannot be read, tier and limits are assumed as `OnUnknownIdentity` says, and the request is
marked (`Request.assumed`). A key is never assumed to be valid: without a record, fresh or old, its
bearer is counted by address.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.api_key import foreign_name, hash_of, is_meant_as_ours, looks_like_api_key
from headgate.core.own_limits import NO_LIMITS, OwnLimits
from headgate.core.records import KeyRecord
from headgate.core.request import Request
from headgate.dataplane.jwt_verifier import Bearer
from headgate.dataplane.proxies import Proxies
from headgate.setting_values import OnForeignApiKey, OnUnknownIdentity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.core.units import Micros
    from headgate.dataplane.jwt_verifier import JwtVerifier
    from headgate.dataplane.record_cache import CachedRecord
    from headgate.dataplane.records import Records

_BEARER: Final = "bearer "
_UNKNOWN: Final = Bearer(None, None, None, 0)
DEFAULT_API_KEY_HEADER: Final = "x-api-key"


class UnauthenticatedCall(NamedTuple):
    """What a gateway passes on of a call whose caller is not authenticated."""

    method: str | None
    path: str | None
    peer: str | None = None
    """The other end of the connection: an address, with or without its port."""
    forwarded_for: str | None = None
    """`X-Forwarded-For`, all of its lines."""
    forwarded: str | None = None
    """`Forwarded`, all of its lines."""
    authorization: str | None = None
    api_key: str | None = None


class Companion(NamedTuple):
    """Something that is started and closed together with an `Identity`."""

    start: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


class Identity:
    """Finds the user, tenant and API key of a request. Never raises: a caller that proves nothing is unknown."""

    def __init__(
        self,
        clock: Callable[[], Micros],
        *,
        tokens: JwtVerifier | None = None,
        records: Records | None = None,
        proxies: Proxies | None = None,
        api_key_header: str = DEFAULT_API_KEY_HEADER,
        on_unknown: OnUnknownIdentity = OnUnknownIdentity.LAST_KNOWN,
        on_foreign_key: OnForeignApiKey | None = None,
    ) -> None:
        """`clock` says what time it is; parts that are not given are not used.

        Unless `on_foreign_key` says otherwise, foreign keys count where there are no records: there all keys are.
        """
        self.api_key_header = api_key_header.lower()
        """The header that API keys come in."""
        self.refused: Counter[str] = Counter()
        """How often keys were refused, by reason; `tokens` counts the same for tokens."""
        self.assumed = 0
        """How many requests were given a tier and limits that are assumed."""
        self.tokens = tokens
        self.records = records
        self._companion: Companion | None = None
        self._clock = clock
        self._proxies = proxies or Proxies()
        self._keeps_stated = on_unknown is OnUnknownIdentity.STATED
        foreign = on_foreign_key or (OnForeignApiKey.COUNT if records is None else OnForeignApiKey.ADDRESS)
        self._counts_foreign = foreign is OnForeignApiKey.COUNT

    async def identify_trusted(self, request: Request) -> Request:
        """The request of a trusted caller, with what is on record about the user and the API key it states.

        Form and checksum of a key are looked at first. One that fails is left out; if it is nothing like ours, and
        foreign keys count, it is a name that the caller has for it, and stays. Without records there are no keys of
        ours to find: what is malformed is then left out where counters get their names (`public_name`).
        """
        return await self._identify(request, counts_foreign=self._counts_foreign)

    async def identify_by_program(self, request: Request) -> Request:
        """The same for a program that identifies its callers itself: its own names for keys always count."""
        return await self._identify(request, counts_foreign=True)

    async def with_key(self, request: Request, digest: bytes) -> Request:
        """The request with the key that has this SHA-256, for those who know a key by its id alone."""
        if self.records is None:
            return request
        key, read = await self._valid_key(self.records, digest)
        return await self._with_record(self.records, _with_key(request, key), key, read)

    async def _identify(self, request: Request, *, counts_foreign: bool) -> Request:
        given, records = request.api_key, self.records
        if given and counts_foreign and (records is None or not is_meant_as_ours(given)):
            request = request._replace(api_key=foreign_name(given, has_ids=records is not None))
            given = None
        if records is None:
            return request._replace(api_key=None) if given else request
        key, read = None, None
        if given:
            key, read = await self._key(records, given)
            request = _with_key(request, key)
        return await self._with_record(records, request, key, read)

    async def identify_call(self, call: UnauthenticatedCall) -> Request:
        """The request behind a call, with what its credentials prove."""
        token = _token(call.authorization)
        is_key = token is not None and looks_like_api_key(token)
        given = call.api_key or (token if is_key else None)
        key, read = None, None
        if given and self.records is not None:
            key, read = await self._key(self.records, given)
        bearer = _UNKNOWN
        if self.tokens is not None and token is not None and not is_key:
            verified = self.tokens.verify(token)
            bearer = verified if isinstance(verified, Bearer) else _UNKNOWN
        user, tenant, key_id = bearer.user, bearer.tenant, None
        if key is not None:
            user, tenant, key_id = user or key.user, tenant or key.tenant, key.id
        address = self._proxies.address(call.peer, call.forwarded_for, call.forwarded)
        request = Request(user, tenant, key_id, address, bearer.tier, call.method, call.path)
        return request if self.records is None else await self._with_record(self.records, request, key, read)

    async def _key(self, records: Records, text: str) -> tuple[KeyRecord | None, CachedRecord | None]:
        """The record of a key if the key is valid, and what was read."""
        if not looks_like_api_key(text):
            self.refused["malformed"] += 1
            return None, None
        return await self._valid_key(records, hash_of(text))

    async def _valid_key(self, records: Records, digest: bytes) -> tuple[KeyRecord | None, CachedRecord | None]:
        """The record of a key, if it is known, not revoked and not expired, and what was read."""
        read = await records.key(digest)
        key = read.record
        if read.is_missing:
            return None, read
        if not isinstance(key, KeyRecord):
            self.refused["unknown"] += 1
        elif key.revoked:
            self.refused["revoked"] += 1
        elif key.expires is not None and key.expires <= self._clock():
            self.refused["expired"] += 1
        else:
            return key, read
        return None, read

    async def _with_record(
        self, records: Records, request: Request, key: KeyRecord | None, found: CachedRecord | None
    ) -> Request:
        """The request with its tier (the key's, the user's, or its own) and its own limits."""
        is_assumed = is_missing = False
        if found is not None and found.is_assumed:
            is_assumed, is_missing = True, found.is_missing
        tier, user_limits, key_limits = request.tier, NO_LIMITS, NO_LIMITS
        user = None
        if request.user:
            read = records.user_now(request.user) or await records.user(request.user)
            user = read[0]
            if read[3]:
                is_assumed, is_missing = True, is_missing or read.is_missing
        if is_missing and not self._keeps_stated:
            tier = None  # the default tier, by the rules
        if user is not None:
            tier, user_limits = user.tier or tier, user.limits
        if key is not None:
            tier, key_limits = key.tier or tier, key.limits
        if is_assumed:
            self.assumed += 1
        elif tier is request.tier and not user_limits and not key_limits:
            return request
        own = OwnLimits(user_limits, key_limits) if user_limits or key_limits else None
        return request._replace(tier=tier, limits=own, assumed=is_assumed)

    def forget(self, names: Sequence[str]) -> None:
        """Forget the records of these names: ``user:ID``, ``key:HASHHEX``, ``*`` for all."""
        if self.records is not None:
            self.records.forget(names)

    def start_with(self, companion: Companion) -> None:
        """Start and close this too, after the parts of this object: what invalidates its records, for example."""
        self._companion = companion

    async def start(self) -> None:
        """Fetch keys and connect before the first request. Continues if that fails."""
        if self.tokens is not None:
            await self.tokens.keys.refresh()
        if self.records is not None:
            await self.records.start()
        if self._companion is not None:
            await self._companion.start()

    async def close(self) -> None:
        """Close everything."""
        if self.tokens is not None:
            await self.tokens.keys.close()
        if self.records is not None:
            await self.records.close()
        if self._companion is not None:
            await self._companion.close()


def _with_key(request: Request, key: KeyRecord | None) -> Request:
    """The request with the user and tenant of a key; without the key that it states, if that proves nothing."""
    if key is None:
        return request._replace(api_key=None)
    return request._replace(user=key.user or request.user, tenant=key.tenant or request.tenant, api_key=key.id)


def _token(authorization: str | None) -> str | None:
    """The token of ``Authorization: Bearer TOKEN`` (RFC 6750, section 2.1)."""
    if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    return authorization[len(_BEARER) :].strip(" ") or None
