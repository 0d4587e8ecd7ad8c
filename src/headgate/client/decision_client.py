"""Clients of the decision service, with and without `await`.

with DecisionClient("http://127.0.0.1:8080") as headgate:
    if not headgate.check(Request(user="u_42", method="GET", path="/api/search")):
        ...
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import httpx

from headgate.client.verdicts import (
    OnFailure,
    check_body,
    read_answer,
    reserve_body,
    verdict_of,
    without_an_answer,
)
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from headgate.client.verdicts import RemoteVerdict
    from headgate.core.request import Request

_CHECK: Final = "/v1/check"
_PEEK: Final = "/v1/peek"
_BATCH: Final = "/v1/check:batch"
_RESERVE: Final = "/v1/reserve"
_SETTLE: Final = "/v1/settle"
_RELEASE: Final = "/v1/release"
_DEADLINE: Final = 0.25


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"X-Headgate-Token": token}


def _settlement(reservation: str, actual: int | None) -> dict[str, Any]:
    return {"reservation": reservation} | ({} if actual is None else {"actual": actual})


def _verdicts(data: dict[str, Any]) -> list[RemoteVerdict]:
    return [verdict_of(each, {}) for each in data.get("verdicts", ())]


def _no_answer(error: Exception) -> StoreError:
    return StoreError(f"the decision service did not answer: {str(error) or type(error).__name__}", transient=True)


class DecisionClient:
    """A client of the decision service. Threads may share it."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        deadline: float = _DEADLINE,
        on_failure: OnFailure | str = OnFailure.ALLOW,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Wait up to `deadline` seconds for each stage of a call; then `on_failure` applies."""
        self._on_failure = OnFailure(on_failure)
        self._http = httpx.Client(base_url=url, headers=_headers(token), timeout=deadline, transport=transport)

    def check(self, request: Request, cost: int | None = None) -> RemoteVerdict:
        """Decide a request, and count it if it passes."""
        return self._decide(_CHECK, check_body(request, cost))

    def peek(self, request: Request, cost: int | None = None) -> RemoteVerdict:
        """What `check` would answer. Changes nothing."""
        return self._decide(_PEEK, check_body(request, cost))

    def check_many(self, requests: Iterable[Request]) -> list[RemoteVerdict]:
        """Decide up to 1,000 independent requests in one call."""
        checks = [check_body(request) for request in requests]
        try:
            return _verdicts(self._ask(_BATCH, {"checks": checks})[0])
        except StoreError:
            if self._on_failure is OnFailure.RAISE:
                raise
            return [without_an_answer(self._on_failure) for _ in checks]

    def reserve(
        self,
        subject: Request | str,
        limit: str | None = None,
        cost: int | None = None,
        *,
        ttl: float = 60.0,
        algorithm: str | None = None,
    ) -> RemoteVerdict:
        """Take an amount now; `settle` or `release` it by the verdict's `reservation`."""
        return self._decide(_RESERVE, reserve_body(subject, limit, cost, ttl, algorithm))

    def settle(self, reservation: str, actual: int | None = None) -> bool:
        """Settle a reservation with the real cost; true the first time. It may be repeated after a `StoreError`."""
        return bool(self._ask(_SETTLE, _settlement(reservation, actual))[0].get("settled"))

    def release(self, reservation: str) -> bool:
        """Release a reservation; whether there was something to release."""
        return bool(self._ask(_RELEASE, _settlement(reservation, None))[0].get("released"))

    def _decide(self, path: str, body: dict[str, Any]) -> RemoteVerdict:
        try:
            return verdict_of(*self._ask(path, body))
        except StoreError:
            if self._on_failure is OnFailure.RAISE:
                raise
            return without_an_answer(self._on_failure)

    def _ask(self, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], httpx.Headers]:
        try:
            response = self._http.post(path, json=body)
        except httpx.HTTPError as error:
            raise _no_answer(error) from error
        return read_answer(response.status_code, response.content), response.headers

    def __enter__(self) -> Self:
        """Nothing has to be started."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class AsyncDecisionClient:
    """As `DecisionClient`, with `await`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        deadline: float = _DEADLINE,
        on_failure: OnFailure | str = OnFailure.ALLOW,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Wait at most `deadline` seconds for an answer; then `on_failure` holds."""
        self._on_failure = OnFailure(on_failure)
        self._deadline = deadline
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(token), timeout=deadline, transport=transport)

    async def check(self, request: Request, cost: int | None = None) -> RemoteVerdict:
        """See `DecisionClient.check`."""
        return await self._decide(_CHECK, check_body(request, cost))

    async def peek(self, request: Request, cost: int | None = None) -> RemoteVerdict:
        """See `DecisionClient.peek`."""
        return await self._decide(_PEEK, check_body(request, cost))

    async def check_many(self, requests: Iterable[Request]) -> Sequence[RemoteVerdict]:
        """See `DecisionClient.check_many`."""
        checks = [check_body(request) for request in requests]
        try:
            return _verdicts((await self._ask(_BATCH, {"checks": checks}))[0])
        except StoreError:
            if self._on_failure is OnFailure.RAISE:
                raise
            return [without_an_answer(self._on_failure) for _ in checks]

    async def reserve(
        self,
        subject: Request | str,
        limit: str | None = None,
        cost: int | None = None,
        *,
        ttl: float = 60.0,
        algorithm: str | None = None,
    ) -> RemoteVerdict:
        """See `DecisionClient.reserve`."""
        return await self._decide(_RESERVE, reserve_body(subject, limit, cost, ttl, algorithm))

    async def settle(self, reservation: str, actual: int | None = None) -> bool:
        """See `DecisionClient.settle`."""
        return bool((await self._ask(_SETTLE, _settlement(reservation, actual)))[0].get("settled"))

    async def release(self, reservation: str) -> bool:
        """See `DecisionClient.release`."""
        return bool((await self._ask(_RELEASE, _settlement(reservation, None)))[0].get("released"))

    async def _decide(self, path: str, body: dict[str, Any]) -> RemoteVerdict:
        try:
            return verdict_of(*await self._ask(path, body))
        except StoreError:
            if self._on_failure is OnFailure.RAISE:
                raise
            return without_an_answer(self._on_failure)

    async def _ask(self, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], httpx.Headers]:
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._http.post(path, json=body)
        except (httpx.HTTPError, TimeoutError) as error:
            raise _no_answer(error) from error
        return read_answer(response.status_code, response.content), response.headers

    async def __aenter__(self) -> Self:
        """Nothing has to be started."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
