"""The processes of `headgate serve`: the main one, workers that only answer checks, and one for embedded servers.

The main process looks after what all share, has the admin API and answers Envoy. Unless there are workers it answers
checks too. In the role `admin` it answers none.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from headgate.adapters.embedded import EmbeddedServer, keep_running
from headgate.cli.banner import Addresses, announce
from headgate.cli.failures import FAILED, report
from headgate.cli.logs import log_to_stderr
from headgate.edge.acceptor import ClosedConnections
from headgate.edge.fairness import TimeSlice
from headgate.edge.http.server import ShutdownTimes, StopSignals, freeze_gc
from headgate.edge.http.server import serve as serve_http
from headgate.edge.refused_sign_ins import RefusedSignIns
from headgate.edge.rls.malformed import MalformedCalls
from headgate.edge.supervisor import KEEPER, SupervisorPipes
from headgate.edge.telemetry import LEADER, Telemetry
from headgate.errors import HeadgateError
from headgate.setting_effects import idle_rule_fields
from headgate.settings import Settings
from headgate.wiring.listeners import rate_limit_service, transport
from headgate.wiring.serving import Running, decision_service

log = logging.getLogger("headgate")


class Service(NamedTuple):
    """What all processes of a service have in common."""

    chosen: Settings
    where: Addresses
    folder: Path | None
    """Where all processes say how they are; None if there is only one."""

    @property
    def ending(self) -> ShutdownTimes:
        """How long its end may take."""
        return ShutdownTimes(self.chosen.notice_seconds, self.chosen.drain_seconds)


class Supervision:
    """What the supervisor says, on the event loop of one of its processes."""

    def __init__(self, link: SupervisorPipes) -> None:
        """Listen from now on."""
        self.all_answer = asyncio.Event()
        self.all_ended = asyncio.Event()
        self._link = link
        asyncio.get_running_loop().add_reader(link.status_fd, self._hear)

    def _hear(self) -> None:
        said = os.read(self._link.status_fd, 64)
        if self._link.all_answer(said):
            self.all_answer.set()
        if self._link.all_ended(said):
            self.all_ended.set()
        if not said:  # a dead supervisor cannot end this process, so it ends itself
            asyncio.get_running_loop().remove_reader(self._link.status_fd)
            os.kill(os.getpid(), signal.SIGINT)


def run_main(service: Service, link: SupervisorPipes) -> int:
    """Run the main process; what keeps it from its first start is told in a sentence."""
    log_to_stderr(service.chosen)
    return _run(partial(uvloop.run, _main(service, link)), in_log=link.restarts > 0)


def run_worker(service: Service, number: int, link: SupervisorPipes) -> int:
    """Run one worker."""
    log_to_stderr(service.chosen, str(number))
    return _run(partial(uvloop.run, _worker(service, number, link)), in_log=True)


def run_servers(
    service: Service, servers: Sequence[EmbeddedServer], release: Callable[[], None], link: SupervisorPipes
) -> int:
    """Run the process that keeps the embedded servers running. It has no use for ports, and releases them."""
    release()
    log_to_stderr(service.chosen, KEEPER)
    return _run(partial(keep_running, servers, link.answers), in_log=link.restarts > 0)


def _run(process: Callable[[], None], *, in_log: bool) -> int:
    try:
        process()
    except HeadgateError as error:
        if not in_log:
            return report(error)
        log.error("%s", error)  # noqa: TRY400 (a sentence for the operator, not a traceback)
        return FAILED
    except Exception as error:
        if not in_log:
            return report(error)
        log.exception("process stops: unexpected error")
        return FAILED
    return 0


async def _main(service: Service, link: SupervisorPipes) -> None:
    chosen, where = service.chosen, service.where
    supervision = Supervision(link)
    carrying = transport(chosen)
    async with AsyncExitStack() as stack:
        telemetry = Telemetry(LEADER, service.folder, restarts=link.restarts)
        telemetry.add(carrying.closed.samples)
        running = await stack.enter_async_context(decision_service(chosen, telemetry))
        control = running.control
        if control is not None and where.admin is not None:
            # Here, because it takes as long to import as all the rest.
            from headgate.edge.admin.server import serving_admin  # noqa: PLC0415 (see above)

            telemetry.add(control.admin.refused.samples)
            await stack.enter_async_context(telemetry.rates.reading())
            serving = serving_admin(control.admin, where.admin)
            # A service that was started is whole when it says so; one that recovers answers checks first.
            await stack.enter_async_context(serving if link.restarts == 0 else _meanwhile(serving))
        time_slice, closed, refused = TimeSlice(), ClosedConnections("grpc"), RefusedSignIns("grpc")
        malformed = MalformedCalls("grpc")
        telemetry.add(closed.samples, refused.samples, malformed.samples)
        await stack.enter_async_context(
            rate_limit_service(
                running.limiter,
                running.identity,
                running.service.is_ready,
                chosen,
                where.grpc,
                running.traces,
                time_slice=time_slice,
                closed=closed,
                refused=refused,
                malformed=malformed,
            )
        )
        banner = asyncio.create_task(_announce(service, running, supervision, is_first=link.restarts == 0))
        stack.callback(banner.cancel)
        if where.http is not None and chosen.workers == 1:
            await serve_http(
                running.service, where.http, service.ending, link.answers, carrying, running.application, time_slice
            )
        else:
            # This process answers Envoy and the admin API, and stores what the others record.
            freeze_gc()
            link.answers()
            notice = chosen.notice_seconds if chosen.role.decides else 0.0
            await _until_the_workers_have_ended(running, supervision, notice)


@asynccontextmanager
async def _meanwhile(serving: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
    """Enter a context while the block runs already; if that fails, the block is left with its error."""
    leaving = asyncio.Event()
    block = asyncio.current_task()
    failed: list[Exception] = []

    async def run() -> None:
        try:
            async with serving:
                await leaving.wait()
        except Exception as error:  # noqa: BLE001 (it is raised again)
            failed.append(error)
            if block is not None and not leaving.is_set():
                block.cancel()

    task = asyncio.create_task(run())
    try:
        yield
    except asyncio.CancelledError:
        if not failed:
            raise
    finally:
        leaving.set()
        await task
    if failed:
        raise failed[0]


async def _announce(service: Service, running: Running, supervision: Supervision, *, is_first: bool) -> None:
    """Say where the service is, once all of it answers."""
    await supervision.all_answer.wait()
    if not is_first:
        return
    for sentence in idle_rule_fields(running.limiter.snapshots.current.rule_set, service.chosen):
        log.warning("%s", sentence)
    announce(running.limiter, running.control, service.chosen, service.where)


async def _until_the_workers_have_ended(running: Running, supervision: Supervision, notice: float) -> None:
    signals = StopSignals()
    await signals.stop.wait()
    running.service.ready = False
    with suppress(TimeoutError):
        async with asyncio.timeout(notice):
            await signals.stop_now.wait()
    await supervision.all_ended.wait()


async def _worker(service: Service, number: int, link: SupervisorPipes) -> None:
    Supervision(link)
    carrying = transport(service.chosen)
    telemetry = Telemetry(str(number), service.folder, restarts=link.restarts)
    telemetry.add(carrying.closed.samples)
    address = service.where.http
    assert address is not None  # noqa: S101 (only services that decide have workers)
    async with decision_service(service.chosen, telemetry, leads=False) as running:
        await serve_http(running.service, address, service.ending, link.answers, carrying, running.application)
