"""`headgate serve`: a supervisor, and the processes that decide and administer."""

import logging
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from typing import Annotated, Final

import typer

from headgate.adapters.data_dir_lock import claimed
from headgate.adapters.embedded import EmbeddedServer, embedded_servers
from headgate.cli.banner import Addresses
from headgate.cli.logs import log_to_stderr
from headgate.cli.options import refuse_idle_settings, settings
from headgate.cli.serve_processes import Service, run_main, run_servers, run_worker
from headgate.cli.token_rules import check_tokens
from headgate.edge.http.server import ShutdownTimes
from headgate.edge.listening import Address, ListenOptions, reserved_address
from headgate.edge.supervisor import KEEPER, MAIN, SUPERVISOR, Supervisor, Task
from headgate.edge.telemetry import shared_folder
from headgate.errors import InvalidSettings
from headgate.setting_effects import keeps_data
from headgate.settings import Settings, complete
from headgate.wiring.listeners import reserved_grpc_address, transport
from headgate.wiring.serving import check_workers

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
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="decisions, admin, or all of it in one service; all unless told.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="How many processes answer; 1 unless told.")
    ] = None,
) -> int:
    """Run the decision service. Each option can also be set as HEADGATE_RULES_FILE, HEADGATE_DATABASE_URL, and so on.

    With a database there is an admin API too, and changes made there are active within a second. Without
    a rules file there is always a database: unless one is named, headgate starts its own servers, with their
    data in the data directory. A rules file that changes is picked up; a broken one is refused, and the active
    rules stay. SIGTERM ends the service in order: /readyz says 503, then requests in flight are finished. A
    process that dies is started again.
    """
    options = {
        "rules_file": rules,
        "database_url": database,
        "host": host,
        "port": port,
        "admin_port": admin_port,
        "grpc_port": grpc_port,
        "role": role,
        "workers": workers,
    }
    chosen = complete(settings(**options))
    check_workers(chosen)
    check_tokens(chosen)
    _check_role(chosen)
    warnings = refuse_idle_settings(chosen, options)
    carrying = transport(chosen)
    with ExitStack() as stack:
        ports = stack.enter_context(ExitStack())
        where = _reserved(chosen, ports, "https" if carrying.tls else "http")
        if keeps_data(chosen):
            parts = [name for name, has in (("decisions", where.http), ("admin", where.admin)) if has is not None]
            stack.enter_context(claimed(chosen.data_dir, parts, where.in_words))
        log_to_stderr(chosen, SUPERVISOR)
        for sentence in warnings:
            log.warning("%s", sentence)
        service = Service(chosen, where, stack.enter_context(shared_folder(_answering(chosen))))
        workers_ = range(1, _answering(chosen) + 1) if _answering(chosen) > 1 else ()
        supervisor = Supervisor(
            Task(MAIN, partial(run_main, service)),
            [Task(str(number), partial(run_worker, service, number)) for number in workers_],
            ShutdownTimes(chosen.notice_seconds, chosen.drain_seconds),
            Task(KEEPER, partial(run_servers, service, servers, ports.close))
            if (servers := _embedded(chosen))
            else None,
        )
        # Who keeps a port longer than its listeners would keep the next service from it.
        return supervisor.run(release=ports.close, before_main=partial(_import_control, where))


def _answering(chosen: Settings) -> int:
    """How many processes answer checks; one does so in the main process."""
    return chosen.workers if chosen.role.decides else 1


def _embedded(chosen: Settings) -> list[EmbeddedServer]:
    """The servers that a process of their own keeps running."""
    with suppress(InvalidSettings):  # the main process says what is wrong
        return embedded_servers(chosen.redis_url or "", chosen.database_url, chosen.data_dir)
    return []


def _import_control(where: Addresses) -> None:
    """Import what the main process imports late, because it takes as long as all the rest."""
    if where.admin is not None:
        import_module("headgate.edge.admin.server")
        import_module("headgate.wiring.control")


def _check_role(chosen: Settings) -> None:
    if not chosen.role.decides and chosen.database_url is None:
        msg = "the role admin needs a database; set HEADGATE_DATABASE_URL"
        raise InvalidSettings(msg)


def _reserved(chosen: Settings, ports: ExitStack, scheme: str) -> Addresses:
    """Where each server is to listen; None for those that the role does not have. They stay the same over restarts."""
    http: Address | None = None
    admin: Address | None = None
    grpc: Address | None = None
    if chosen.role.decides:
        http = ports.enter_context(reserved_address(chosen.host, chosen.port, scheme, _OPTIONS))
        if chosen.workers > 1:  # each listens by itself, and the others answer when one dies
            http = http._replace(reserved=None)
    if chosen.role.administers and chosen.database_url is not None:
        admin = ports.enter_context(reserved_address(chosen.admin_host, chosen.admin_port, options=_ADMIN_OPTIONS))
    if chosen.role.decides:
        grpc = ports.enter_context(reserved_grpc_address(chosen))
    return Addresses(http, admin, grpc)
