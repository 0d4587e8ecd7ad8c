"""From settings to a decision service that answers, in one process or in each of several."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headgate import wiring
from headgate.adapters.embedded import EmbeddedStore
from headgate.adapters.rules_file import RulesFile
from headgate.core.ids import new_id
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.limiter import Limiter
from headgate.edge.http.application import Bounds
from headgate.edge.http.server import Transport
from headgate.edge.http.service import DecisionService
from headgate.edge.listening import Tls
from headgate.errors import InvalidSettings
from headgate.wiring.recording import recorded, recorder_for
from headgate.wiring.state_samples import recording_samples, state_samples
from headgate.wiring.tracing import in_front_of, observer_of, opened_traces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headgate.adapters.otlp_traces import Traces
    from headgate.dataplane.flusher import Counted
    from headgate.edge.http.application import Application
    from headgate.settings import Settings
    from headgate.wiring.control import ControlPlane
    from headgate.wiring.telemetry import Telemetry

_IN_THIS_PROCESS = "memory:"


class Running(NamedTuple):
    """What decides, and what it decides by."""

    service: DecisionService
    limiter: Limiter
    control: ControlPlane | None
    """Where there is a database."""
    application: Application
    """What answers: the service, or what stands in front of it."""
    traces: Traces | None
    """Where they are wanted."""


@asynccontextmanager
async def decision_service(settings: Settings, telemetry: Telemetry, *, leads: bool = True) -> AsyncIterator[Running]:
    """A service on complete settings. Of several processes only one `leads`: it looks after what they share.

    What there is to report goes to `telemetry`.
    """
    store_url = settings.redis_url or ""
    try:
        counters = wiring.open_counters(
            store_url,
            data_dir=settings.data_dir,
            max_wait=settings.overload_seconds,
            deny_cache_mb=settings.deny_cache_mb,
            processes=settings.workers,
        )
    except InvalidSettings as error:
        msg = f"HEADGATE_REDIS_URL is malformed: {error}"
        raise InvalidSettings(msg) from error
    rules_here = None if settings.database_url else settings.rules_file
    async with AsyncExitStack() as stack:
        traces = await stack.enter_async_context(opened_traces(settings, telemetry.worker))
        recorder = recorder_for(settings)
        observer = observer_of(recorder, traces)
        limiter = Limiter(counters.store, *wiring.rest_of(store_url, rules_here), observer=observer)
        await stack.enter_async_context(limiter)
        embedded = wiring.layer(limiter.store, EmbeddedStore)
        if embedded is not None:
            await embedded.connect()  # what is wrong with it is better known now than at the first check
        guarded = wiring.layer(limiter.store, Guarded)
        if guarded is not None:
            guarded.begin()
        control = None
        if settings.database_url is not None:
            # Here, because it takes as long to import as all the rest.
            from headgate.wiring.control import control_plane  # noqa: PLC0415 (see above)

            file = None if settings.rules_file is None else RulesFile(settings.rules_file)
            control = control_plane(settings, counters, limiter, file, leads=leads, metrics=telemetry.text)
            await stack.enter_async_context(control.runtime)
        service = DecisionService(
            limiter,
            identity=None if control is None else control.identity,
            shedding_for=counters.shedding_for,
            running_on=(lambda: {"rules": "file"}) if control is None else control.runtime.running_on,
            token=settings.service_token,
            secret=_secret(settings),
            metrics=telemetry.text,
        )
        telemetry.sources += state_samples(telemetry.worker, service, limiter, control)
        await stack.enter_async_context(telemetry.sharing())
        # Behind the control plane, whose database it stores to when everything else has ended.
        observers: list[Callable[[Counted], None]] = [telemetry.observe]
        if control is not None:
            observers.append(control.usage.observe)
        recordings = await stack.enter_async_context(recorded(settings, recorder, control, observers, leads=leads))
        telemetry.sources.append(partial(recording_samples, telemetry.worker, recordings))
        yield Running(service, limiter, control, in_front_of(service, traces), traces)


def check_workers(settings: Settings) -> None:
    """Refuse several processes that would each count by themselves."""
    many = settings.workers
    if many > 1 and (settings.redis_url or "").startswith(_IN_THIS_PROCESS):
        msg = f"{many} workers on memory:// would each count by themselves and admit {many} times every limit; use one"
        raise InvalidSettings(msg)


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


def _secret(settings: Settings) -> str:
    """What services must share to settle each other's reservations, which are only good for the same counters."""
    store = settings.redis_url or ""
    if store.startswith(_IN_THIS_PROCESS):
        store = new_id()  # the next process has other counters
    return f"{settings.service_token}\n{store}"
