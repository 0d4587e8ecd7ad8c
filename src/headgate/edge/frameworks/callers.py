"""Who calls an ASGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.edge.frameworks.calls import FORWARDING, call_of_asgi, described, request_by_address
from headgate.edge.frameworks.options import settled

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import TypeAlias

    from headgate.core.request import Request
    from headgate.dataplane.identity import Identity, UnauthenticatedCall
    from headgate.dataplane.proxies import Proxies
    from headgate.edge.frameworks.options import Function

    Scope: TypeAlias = MutableMapping[str, Any]

_REMEMBERED: Final = 4_096


class Callers:
    """Who calls: by the application's `identify`, or by token, API key and address."""

    def __init__(self, identity: Identity, proxies: Proxies, identify: Function | None) -> None:
        """`identity` is used only without `identify`."""
        self._identity = identity
        self._proxies = proxies
        self._identify = identify
        self._api_key_header = identity.api_key_header.encode("latin-1")
        self._by_address = identify is None and identity.tokens is None and identity.records is None
        self._addresses: dict[str | None, str | None] = {}
        """Addresses of peers that sent no forwarding header."""

    async def request(self, scope: Scope, path: str, route: str | None) -> Request:
        """The request behind a scope."""
        call = self._call(scope, path)
        if self._identify is None:
            return (await self._identity.identify_call(call))._replace(route=route)
        request = described(await settled(self._identify(scope)), call, self._address(scope), route)
        return request if self._identity.records is None else await self._identity.identify_by_program(request)

    def request_now(self, scope: Scope, path: str, route: str | None) -> Request | None:
        """Fast path of `request`: without waiting, where callers are known by their address alone."""
        if not self._by_address:
            return None
        address = self._address(scope)
        return request_by_address(address, scope.get("method", "GET"), path, route)

    def _call(self, scope: Scope, path: str) -> UnauthenticatedCall:
        return call_of_asgi(scope.get("method", "GET"), path, _peer(scope), scope["headers"], self._api_key_header)

    def _address(self, scope: Scope) -> str | None:
        peer = _peer(scope)
        for name, _ in scope["headers"]:
            if name in FORWARDING:
                call = self._call(scope, "")
                return self._proxies.address(peer, call.forwarded_for, call.forwarded)
        try:
            return self._addresses[peer]
        except KeyError:
            if len(self._addresses) >= _REMEMBERED:
                self._addresses.clear()
            address = self._addresses[peer] = self._proxies.address(peer, None, None)
            return address

    async def start(self) -> None:
        """Load keys and records before the first call."""
        await self._identity.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._identity.close()


def _peer(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None
