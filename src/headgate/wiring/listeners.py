"""What listens: the HTTP transport with its bounds and TLS, and Envoy's rate-limit service beside it."""

from __future__ import annotations

import ssl
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from headgate.core.headers import Reset
from headgate.edge.access import Access, GrpcProtection
from headgate.edge.http.application import Bounds
from headgate.edge.http.server import Transport
from headgate.edge.listening import Address, ListenOptions, Tls, reserved_address
from headgate.edge.refused_sign_ins import RefusedSignIns
from headgate.edge.rls.decisions import RateLimits
from headgate.errors import HeadgateError, InvalidSettings
from headgate.setting_values import RlsOnOverload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from headgate.adapters.otlp_traces import Traces
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.acceptor import ClosedConnections
    from headgate.edge.fairness import TimeSlice
    from headgate.edge.rls.malformed import MalformedCalls
    from headgate.settings import Settings

_GRPC_OPTIONS: Final = ListenOptions("HEADGATE_GRPC_HOST", "--grpc-port or HEADGATE_GRPC_PORT")


@contextmanager
def reserved_grpc_address(chosen: Settings) -> Iterator[Address | None]:
    """Where Envoy's rate-limit service is to listen, reserved inside the block; None without the extra `grpc`."""
    if find_spec("hpack") is None:
        yield None
        return
    with ExitStack() as port:
        try:
            address = port.enter_context(reserved_address(chosen.grpc_host, chosen.grpc_port, options=_GRPC_OPTIONS))
        except HeadgateError as error:
            msg = f"Envoy's rate-limit service: {error}"
            raise HeadgateError(msg) from error
        yield address


@asynccontextmanager
async def rate_limit_service(
    limiter: Limiter,
    identity: Identity | None,
    is_ready: Callable[[], bool],
    chosen: Settings,
    address: Address | None,
    traces: Traces | None = None,
    *,
    time_slice: TimeSlice | None = None,
    closed: ClosedConnections | None = None,
    refused: RefusedSignIns | None = None,
    malformed: MalformedCalls | None = None,
) -> AsyncIterator[None]:
    """Answer Envoy inside the block at this address; with None there is no such service.

    `time_slice` is that of the event loop; `closed` counts connections that the server closes, `refused` calls
    without the service token, `malformed` calls that no rule can be found for.
    """
    if address is None:
        yield
        return
    from headgate.edge.grpc.bounds import Bounds as GrpcBounds  # noqa: PLC0415 (an extra)
    from headgate.edge.grpc.methods import methods  # noqa: PLC0415 (an extra)
    from headgate.edge.grpc.server import ALPN, serving_grpc  # noqa: PLC0415 (an extra)

    identify = None if identity is None else identity.identify_trusted
    # Without records no call has to wait for one.
    keys_only = identity is not None and identity.records is None
    reset = Reset(chosen.reset_header)
    rate_limits = RateLimits(limiter, identify, reset, malformed, looks_up_keys_only=keys_only)
    for_call = None
    if traces is not None:
        from headgate.edge.tracing import traced_calls  # noqa: PLC0415 (an extra)

        for_call = traced_calls(traces)
    carrying, token = transport(chosen), chosen.service_token
    files = carrying.tls
    access = None if token is None else Access(token, refused or RefusedSignIns("grpc"))
    protection = GrpcProtection(None if files is None else files.reloaded(ALPN), access)
    denies = chosen.rls_on_overload is RlsOnOverload.OVER_LIMIT
    answering = methods(rate_limits, is_ready, denies_on_overload=denies)
    bounds = GrpcBounds(first_call=chosen.header_seconds, incomplete=chosen.body_seconds)
    seconds, most = chosen.drain_seconds, carrying.connections
    async with serving_grpc(
        answering, address, seconds, for_call, protection, most, bounds=bounds, time_slice=time_slice, closed=closed
    ):
        yield


def transport(settings: Settings) -> Transport:
    """What a connection may take, and how it is protected."""
    bounds = Bounds(settings.header_limit, settings.body_limit, settings.header_seconds, settings.body_seconds)
    return Transport(bounds, settings.connections, _tls(settings))


def _tls(settings: Settings) -> Tls | None:
    certificate, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if certificate is None or key is None:
        if certificate or key or client_ca:
            msg = "HEADGATE_TLS_CERT and HEADGATE_TLS_KEY go together, and HEADGATE_TLS_CLIENT_CA with them; set both"
            raise InvalidSettings(msg)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, lambda: "")
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "strerror", None) or error
        msg = f"the files of HEADGATE_TLS_CERT, _KEY and _CLIENT_CA cannot be used: {reason}; write names of PEM files"
        raise InvalidSettings(msg) from error
    return Tls(certificate, key, client_ca)
