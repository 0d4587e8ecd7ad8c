"""The keys of an issuer (a JWKS), as they change.

Keys are fetched in the background, so that no request waits for an issuer. A token that names
an unknown key makes them be fetched again, but not more than once in a while: anybody can
invent names of keys. What was fetched stays until something better was.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final, Protocol

from headgate.core.units import SECOND
from headgate.dataplane.jwt_keys import VerifyingKey, key_from_jwk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.core.units import Micros

log = logging.getLogger("headgate")

_BETWEEN: Final[Micros] = 10 * SECOND
_AGE: Final[Micros] = 300 * SECOND
_SECONDS: Final = 5.0
_MOST_KEYS: Final = 64


class Keys(Protocol):
    """Where a token's key is found."""

    @property
    def generation(self) -> int:
        """Grows when keys change, since what they have verified may not hold any more."""

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """The key of a token, by what its header says."""

    async def refresh(self) -> None:
        """Look for newer keys now. Never raises."""

    async def close(self) -> None:
        """Give up what is under way."""


class OneKey:
    """Always the same key, whatever a token calls it."""

    generation = 0

    def __init__(self, key: VerifyingKey) -> None:
        """`key` is for all tokens."""
        self._key = key

    def find(self, _kid: str | None, _algorithm: str) -> VerifyingKey | None:
        """See `Keys.find`."""
        return self._key

    async def refresh(self) -> None:
        """There are no newer ones."""

    async def close(self) -> None:
        """Nothing is under way."""


class KeySet:
    """The keys of an issuer, by name."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[bytes]],
        algorithms: Sequence[str],
        clock: Callable[[], Micros],
        *,
        seconds: float = _SECONDS,
    ) -> None:
        """`fetch` gets the document or raises anything; it has so many seconds. `clock` never steps back."""
        self.generation = 0
        self._fetch = fetch
        self._algorithms = frozenset(algorithms)
        self._clock = clock
        self._seconds = seconds
        self._keys: dict[str | None, list[VerifyingKey]] = {}
        self._asked: Micros | None = None
        self._fetching: asyncio.Task[None] | None = None

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """The key of that name, or, for a token that names none, the only one that can be meant."""
        named = self._keys.get(kid, []) if kid is not None else [each for keys in self._keys.values() for each in keys]
        fitting = [key for key in named if algorithm in key.algorithms]
        if not fitting:
            self._fetch_again(_BETWEEN)
        else:
            self._fetch_again(_AGE)
        return fitting[0] if len(fitting) == 1 else None

    def _fetch_again(self, age: Micros) -> None:
        """Fetch in the background, unless that was tried less than `age` ago, or is under way."""
        is_due = self._asked is None or self._clock() - self._asked >= age
        if is_due and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.create_task(self.refresh())

    async def refresh(self) -> None:
        """Fetch now. Whatever goes wrong is logged, and the keys stay as they are."""
        self._asked = self._clock()
        try:
            async with asyncio.timeout(self._seconds):
                keys = self._read(await self._fetch())
        except Exception as error:  # noqa: BLE001 (whatever an issuer does, tokens of known keys go on)
            reason = "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            log.warning("the keys of tokens could not be fetched, those known stay: %s", reason)
            return
        if keys != self._keys:
            self._keys = keys
            self.generation += 1
            log.info("there are %d keys for tokens", sum(map(len, keys.values())))

    def _read(self, document: bytes) -> dict[str | None, list[VerifyingKey]]:
        data = json.loads(document)
        listed = data.get("keys") if isinstance(data, dict) else None
        found: dict[str | None, list[VerifyingKey]] = {}
        for each in listed[:_MOST_KEYS] if isinstance(listed, list) else ():
            key = key_from_jwk(each, self._algorithms) if isinstance(each, dict) else None
            if key is not None:
                kid = each.get("kid")
                found.setdefault(kid if isinstance(kid, str) else None, []).append(key)
        if not found:
            msg = "there is no key in it that the algorithms of HEADGATE_JWT_ALGORITHMS can use"
            raise ValueError(msg)
        return found

    async def close(self) -> None:
        """Give up what is under way."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
