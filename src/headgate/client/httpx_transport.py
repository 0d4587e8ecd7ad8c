"""Transports for httpx that keep to the limits of the APIs they call.

client = httpx.AsyncClient(transport=AsyncRateLimitTransport())
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import httpx

from headgate.adapters.clock import sleep
from headgate.client.calls import Pacers

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from headgate.client.calls import PacedCall
    from headgate.client.pacer import Pacer


def _call(pacers: Pacers, request: httpx.Request) -> PacedCall:
    # Bytes can be sent again; a stream is consumed by the first attempt.
    is_replayable = isinstance(request.stream, httpx.ByteStream)
    return pacers.call(request.method, str(request.url), request.headers, has_replayable_body=is_replayable)


class RateLimitTransport(httpx.BaseTransport):
    """For `httpx.Client`: waits before calls as the API's limits require, and retries refused calls."""

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        pacers: Pacers | None = None,
        *,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        """Wrap `transport`. Clients with the same `pacers` share their budgets. `sleep` is for tests."""
        self._transport = httpx.HTTPTransport() if transport is None else transport
        self._pacers = Pacers() if pacers is None else pacers
        self._sleep = sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request when the limits allow it, and again if it was refused."""
        call = _call(self._pacers, request)
        while True:
            call.take_turn(self._sleep)
            try:
                response = self._transport.handle_request(request)
            except BaseException:
                call.broken_off()
                raise
            if call.is_final(response.status_code, response.headers.multi_items()):
                return response
            response.close()

    def __enter__(self) -> Self:
        """Open the transport below."""
        self._transport.__enter__()
        return self

    def close(self) -> None:
        """Close the transport below."""
        self._transport.close()


class AsyncRateLimitTransport(httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient`: as `RateLimitTransport`."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, pacers: Pacers | None = None) -> None:
        """Wrap `transport`. Clients with the same `pacers` share their budgets."""
        self._transport = httpx.AsyncHTTPTransport() if transport is None else transport
        self._pacers = Pacers() if pacers is None else pacers
        self._queues: WeakKeyDictionary[Pacer, asyncio.Lock] = WeakKeyDictionary()
        """Waiting tasks queue here, so that only one of them sleeps."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request when the limits allow it, and again if it was refused."""
        call = _call(self._pacers, request)
        while True:
            await self._take_turn(call)
            try:
                response = await self._transport.handle_async_request(request)
            except BaseException:
                call.broken_off()
                raise
            if call.is_final(response.status_code, response.headers.multi_items()):
                return response
            await response.aclose()

    async def _take_turn(self, call: PacedCall) -> None:
        queue = self._queues.setdefault(call.pacer, asyncio.Lock())
        try:
            async with asyncio.timeout(call.patience):
                await queue.acquire()
        except TimeoutError:
            raise call.too_long() from None
        try:
            while wait := call.wait():  # noqa: ASYNC110 (it says how long)
                await asyncio.sleep(wait)
        finally:
            queue.release()

    async def __aenter__(self) -> Self:
        """Open the transport below."""
        await self._transport.__aenter__()
        return self

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._transport.aclose()
