"""gRPC calls in the forms that other calls have, and refusals as statuses of gRPC. Needs no gRPC library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.edge.frameworks.marks import is_exempt, limits_at
from headgate.edge.frameworks.routes import Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.core.verdict import Verdict

WITHOUT_EFFECT: Final = ("methods", "per_method", "status")
WHY: Final = "gRPC calls have no HTTP method, and are refused with RESOURCE_EXHAUSTED"
CALL: Final = "grpc.call"
_LAST_OF_IPV6: Final = "]"
_FORWARDING: Final = frozenset({"forwarded", "x-forwarded-for"})
"""Each proxy adds its own line, so all of them count; of other names the first does."""


class Call(NamedTuple):
    """A call, for functions of the application."""

    method: str
    """Its full name, such as ``/shop.Search/Find``."""
    metadata: Mapping[str, str]
    """Its metadata, with names in lower case; of several values of one name the first, of forwarding ones all."""
    context: Any
    """The context that the servicer gets."""
    message: Any
    """The request message; for streams the iterator of messages."""


class Outcome(NamedTuple):
    """How a call ended, for `deduct_when`."""

    code: Any
    """The status code of gRPC; None is OK."""
    message: Any
    """The response message; None if there is none, or a stream of them."""


def call_of(method: str, metadata: Iterable[tuple[str, str | bytes]], context: Any, message: Any) -> Call:  # noqa: ANN401 (gRPC's)
    """A call, with its metadata as text."""
    found: dict[str, str] = {}
    for name, value in metadata or ():
        text = value if isinstance(value, str) else value.decode("latin-1")
        if name in _FORWARDING and name in found:
            found[name] += f", {text}"
        else:
            found.setdefault(str(name), text)
    return Call(method, found, context, message)


def peer_of(peer: str) -> str | None:
    """The address in what gRPC calls a peer: ``ipv4:192.0.2.1:5000``, ``ipv6:%5B::1%5D:5000``, ``unix:…``."""
    kind, _, rest = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return None
    address = rest.replace("%5B", "[").replace("%5D", _LAST_OF_IPV6).rpartition(":")[0]
    return address.strip("[]") or None


def environ_of(call: Call) -> dict[str, Any]:
    """A call in the form of a WSGI environment, for all that is decided by it."""
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "REMOTE_ADDR": peer_of(call.context.peer()) or ""}
    for name, value in call.metadata.items():
        if "_" in name:
            continue  # or x_forwarded_for, by the caller, would take the place of the proxy's x-forwarded-for
        environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    return environ


def scope_of(call: Call) -> dict[str, Any]:
    """A call in the form of an ASGI scope, for all that is decided by it."""
    peer = peer_of(call.context.peer())
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in call.metadata.items()]
    client = None if peer is None else (peer, 0)
    return {"type": "http", "method": "POST", "path": call.method, "headers": headers, "client": client, CALL: call}


def route_of(method: str, behaviour: object) -> Route:
    """The route of a method: its name, and the limits at the servicer's function."""
    return Route(method, limits_at(behaviour), is_exempt(behaviour))


def metadata_of(headers: Iterable[tuple[str, str]], verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """The rate-limit headers as trailing metadata; `grpc-retry-pushback-ms` tells clients of gRPC when to retry."""
    found = [(name.lower(), value) for name, value in headers]
    wait = verdict.retry_after
    if not verdict.allowed:
        found.append(("grpc-retry-pushback-ms", "-1" if wait is None else str(max(1, round(wait * 1_000)))))
    return tuple(found)
