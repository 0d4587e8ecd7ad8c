"""From settings to a decision service that answers, in one process or in each of several."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headgate import wiring
from headgate.adapters.clock import wall_clock
from headgate.adapters.embedded import EmbeddedStore
from headgate.adapters.rules_file import RulesFile
from headgate.core.headers import Reset
from headgate.core.ids import new_id
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.leased import Leased
from headgate.dataplane.limiter import Limiter
from headgate.edge.http.service import DecisionService
from headgate.edge.state_samples import control_samples, event_samples, rules_samples, store_samples
from headgate.errors import InvalidSettings
from headgate.wiring.events import recorded, recorder_for
from headgate.wiring.identity import identity_from
from headgate.wiring.tracing import in_front_of, observer_of, opened_traces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headgate.adapters.otlp_traces import Traces
    from headgate.dataplane.flusher import Counted
    from headgate.dataplane.identity import Identity
    from headgate.edge.http.application import Application
    from headgate.edge.telemetry import Telemetry
    from headgate.settings import Settings
    from headgate.wiring.control import ControlPlane

_IN_THIS_PROCESS = "memory:"


class Running(NamedTuple):
    """What decides, and what it decides by."""

    service: DecisionService
    limiter: Limiter
    identity: Identity
    """Who is asking, by the settings; with a database, by its records too."""
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
    regions = wiring.Regions(settings.region, dict(settings.region_urls), settings.gossip_seconds)
    try:
        counters = wiring.open_counters(
            store_url,
            data_dir=settings.data_dir,
            max_wait=settings.overload_seconds,
            deny_cache_mb=settings.deny_cache_mb,
            processes=settings.workers,
            regions=regions,
        )
    except InvalidSettings as error:
        msg = f"HEADGATE_REDIS_URL is malformed: {error}"
        raise InvalidSettings(msg) from error
    rules_here = None if settings.database_url else settings.rules_file
    worker = telemetry.worker
    async with AsyncExitStack() as stack:
        traces = await stack.enter_async_context(opened_traces(settings, worker))
        recorder = recorder_for(settings)
        rest = wiring.rest_of(store_url, rules_here, regions=regions)
        observer, may = observer_of(recorder, traces), settings.peek_replicas
        limiter = Limiter(counters.store, *rest, observer=observer, peeks_replicas=may)
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

            file = None if settings.rules_file is None else RulesFile(settings.rules_file, settings.rules_owner)
            control = control_plane(settings, counters, limiter, file, leads=leads, telemetry=telemetry)
            await stack.enter_async_context(control.runtime)
            time = asyncio.get_running_loop().time
            telemetry.add(control_samples(worker, control.runtime, control.identity, time))
            identity = control.identity
        else:
            # Addresses and tokens need no records. Those of a control plane are started and closed by its runtime.
            identity = identity_from(settings, None, None, wall_clock)
            await identity.start()
            stack.push_async_callback(identity.close)
        service = DecisionService(
            limiter,
            identity=identity,
            shedding_for=counters.shedding_for,
            running_on=(lambda: {"rules": "file"}) if control is None else control.runtime.running_on,
            token=settings.service_token,
            secret=reservation_secret(settings),
            metrics=telemetry.text,
            reset=Reset(settings.reset_header),
        )
        cache, leased = wiring.layer(limiter.store, DenyCache), wiring.layer(limiter.store, Leased)
        telemetry.add(
            service.samples, rules_samples(worker, service, limiter), store_samples(worker, cache, guarded, leased)
        )
        if counters.hot is not None:
            telemetry.add(partial(counters.hot.samples, worker))
            await stack.enter_async_context(counters.hot.sharing())
        await stack.enter_async_context(telemetry.sharing())
        # Behind the control plane, whose database it stores to when everything else has ended.
        observers: list[Callable[[Counted], None]] = [telemetry.observe]
        if control is not None:
            observers.append(control.usage.observe)
        flusher, exporter = await stack.enter_async_context(
            recorded(settings, recorder, control, observers, leads=leads)
        )
        telemetry.add(partial(event_samples, worker, flusher, exporter))
        yield Running(service, limiter, identity, control, in_front_of(service, traces), traces)


def check_workers(settings: Settings) -> None:
    """Refuse several processes that would each count by themselves."""
    many = settings.workers
    if many > 1 and (settings.redis_url or "").startswith(_IN_THIS_PROCESS):
        msg = f"{many} workers on memory:// would each count by themselves and admit {many} times every limit; use one"
        raise InvalidSettings(msg)


def reservation_secret(settings: Settings) -> str:
    """What services must share to settle each other's reservations, which are only good for the same counters."""
    store = settings.redis_url or ""
    store = new_id() if store.startswith(_IN_THIS_PROCESS) else store  # the next process has other counters
    # Each region has counters of its own. Without one it is what it always was: reservations outlive an upgrade.
    return "\n".join([str(settings.service_token), store, *([settings.region] if settings.region else [])])
