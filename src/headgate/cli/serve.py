"""`headgate serve`: the decision service and, on a database, the admin API, in one process or several."""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop

from headgate.cli.banner import Addresses, announce
from headgate.cli.logs import log_to_stderr
from headgate.cli.options import refuse_idle_settings, settings
from headgate.cli.token_rules import check_tokens
from headgate.edge.acceptor import ClosedConnections
from headgate.edge.fairness import TimeSlice
from headgate.edge.http.server import ShutdownTimes, Transport, freeze_gc
from headgate.edge.http.server import serve as serve_http
from headgate.edge.http.workers import Workers
from headgate.edge.listening import Address, ListenOptions, reserved_address
from headgate.edge.refused_sign_ins import RefusedSignIns
from headgate.edge.telemetry import Telemetry, shared_folder
from headgate.errors import HeadgateError
from headgate.setting_effects import idle_rule_fields
from headgate.settings import Settings, complete
from headgate.wiring.listeners import rate_limit_service, transport
from headgate.wiring.serving import check_workers, decision_service

log = logging.getLogger("headgate")

_OPTIONS: Final = ListenOptions("--host or HEADGATE_HOST", "--port or HEADGATE_PORT")
_ADMIN_OPTIONS: Final = ListenOptions("HEADGATE_ADMIN_HOST", "--admin-port or HEADGATE_ADMIN_PORT")


def serve(
    rules: Annotated[str | None, typer.Option(metavar="FILE", help="The YAML file with the rules.")] = None,
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where rules, tiers, users, keys and blocks are kept, as in embedded://."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; 127.0.0.1 unless told.")] = None,
    port: Annotated[str | None, typer.Option(metavar="NUMBER", help="The port to listen on; 8080 unless told.")] = None,
    admin_port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The port of the admin API; 8081 unless told.")
    ] = None,
    grpc_port: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The port of Envoy's rate-limit service; 8082 unless told.")
    ] = None,
    workers: Annotated[str | None, typer.Option(metavar="NUMBER", help="How many processes answer.")] = None,
) -> None:
    """Run the decision service. Each option can also be set as HEADGATE_RULES_FILE, HEADGATE_DATABASE_URL, and so on.

    With a database there is an admin API too, and changes made there are active within a second. Without
    a rules file there is always one: servers of our own, in the data directory, unless told. A rules file
    that changes is picked up; a broken one is refused, and the active rules stay. SIGTERM ends the service
    in order: /readyz says 503, then requests in flight are finished.
    """
    options = {
        "rules_file": rules,
        "database_url": database,
        "host": host,
        "port": port,
        "admin_port": admin_port,
        "grpc_port": grpc_port,
        "workers": workers,
    }
    chosen = complete(settings(**options))
    check_workers(chosen)
    check_tokens(chosen)
    warnings = refuse_idle_settings(chosen, options)
    carrying = transport(chosen)
    log_to_stderr(chosen)
    for sentence in warnings:
        log.warning("%s", sentence)
    scheme = "https" if carrying.tls else "http"
    with ExitStack() as ports:
        address = ports.enter_context(reserved_address(chosen.host, chosen.port, scheme, _OPTIONS))
        uvloop.run(_run(chosen, address, carrying, ports))


async def _run(chosen: Settings, address: Address, carrying: Transport, ports: ExitStack) -> None:
    ending = ShutdownTimes(chosen.notice_seconds, chosen.drain_seconds)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(shared_folder(chosen.workers))
        telemetry = Telemetry(folder=folder)
        telemetry.sources.append(carrying.closed.samples)
        running = await stack.enter_async_context(decision_service(chosen, telemetry))
        service, limiter, control = running.service, running.limiter, running.control
        admin_address = None
        if control is not None:
            # Here, because it takes as long to import as all the rest.
            from headgate.edge.admin.server import serving_admin  # noqa: PLC0415 (see above)

            admin_address = ports.enter_context(
                reserved_address(chosen.admin_host, chosen.admin_port, options=_ADMIN_OPTIONS)
            )
            telemetry.sources.append(control.admin.refused.samples)
            await stack.enter_async_context(telemetry.rates.reading())
            await stack.enter_async_context(serving_admin(control.admin, admin_address))
        time_slice, closed, refused = TimeSlice(), ClosedConnections("grpc"), RefusedSignIns("grpc")
        telemetry.sources += [closed.samples, refused.samples]
        grpc_address = await stack.enter_async_context(
            rate_limit_service(
                limiter,
                running.identity,
                service.is_ready,
                chosen,
                running.traces,
                time_slice=time_slice,
                closed=closed,
                refused=refused,
            )
        )

        def started() -> None:
            ports.close()  # all listen by now; who kept a port longer would keep the next service from it, too
            for sentence in idle_rule_fields(limiter.snapshots.current.rule_set, chosen):
                log.warning("%s", sentence)
            announce(limiter, control, chosen, Addresses(address, admin_address, grpc_address))

        if chosen.workers == 1:
            await serve_http(service, address, ending, started, carrying, running.application, time_slice)
        else:
            freeze_gc()  # this process answers Envoy and the admin API, and stores what the others record
            await Workers(chosen.workers, partial(work, chosen, address, folder)).run(ending, started)


def work(settings: Settings, address: Address, folder: Path | None, number: int, started: Connection) -> None:
    """Answer until told to stop; `folder` is where all processes of the service say how they are."""
    os.setpgid(0, 0)  # ctrl-c is for the process that started this one, which tells what to do
    log_to_stderr(settings, number)
    try:
        uvloop.run(_run_worker(settings, address, Telemetry(str(number), folder), started))
    except HeadgateError as error:
        log.error("%s", error)  # noqa: TRY400 (a sentence for the operator, not a traceback)
        sys.exit(1)
    except Exception:
        log.exception("this process stops because of an unexpected error")
        sys.exit(1)


async def _run_worker(settings: Settings, address: Address, telemetry: Telemetry, started: Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A dead parent cannot end this worker, so the worker ends itself.
        asyncio.get_running_loop().add_reader(parent.sentinel, os.kill, os.getpid(), signal.SIGTERM)
    ending = ShutdownTimes(settings.notice_seconds, settings.drain_seconds)
    carrying = transport(settings)
    telemetry.sources.append(carrying.closed.samples)
    async with decision_service(settings, telemetry, leads=False) as running:
        await serve_http(
            running.service,
            address,
            ending,
            lambda: started.send_bytes(b"!"),
            carrying,
            running.application,
        )
