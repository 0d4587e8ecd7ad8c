"""`headgate serve`: the decision service and, on a database, the admin API, until told to stop."""

import logging
import sys
from contextlib import AsyncExitStack
from typing import Annotated

import typer
import uvloop

from headgate import wiring
from headgate.adapters.embedded import EmbeddedStore
from headgate.adapters.rules_file import RulesFile
from headgate.cli.announcement import announce
from headgate.cli.environment import settings
from headgate.edge.http.server import Address, Ending, free_address
from headgate.edge.http.server import serve as serve_http
from headgate.edge.http.service import DecisionService
from headgate.errors import InvalidSettings
from headgate.facade import Limiter
from headgate.settings import Settings
from headgate.wiring import Counters, complete

_IN_THIS_PROCESS = "memory:"


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
    workers: Annotated[str | None, typer.Option(metavar="NUMBER", help="How many processes answer.")] = None,
) -> None:
    """Run the decision service. Each option can also be set as HEADGATE_RULES_FILE, HEADGATE_DATABASE_URL, and so on.

    With a database there is an admin API too, and changes made there are in force within a second. Without
    a rules file there is always one: servers of our own, in the data directory, unless told. A rules file
    that changes is picked up; a broken one is refused, and the rules in force stay. SIGTERM ends the service
    in order: /readyz says 503, then requests under way are finished.
    """
    chosen = complete(
        settings(rules_file=rules, database_url=database, host=host, port=port, admin_port=admin_port, workers=workers)
    )
    logging.basicConfig(
        level=chosen.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    store_url = chosen.redis_url or ""
    if chosen.workers > 1:
        many = chosen.workers
        msg = f"{many} workers on memory:// would each count by themselves and admit {many} times every limit; use one"
        if not store_url.startswith(_IN_THIS_PROCESS):
            msg = f"{many} workers are more than this version can start; use one, or start the service several times"
        raise InvalidSettings(msg)
    try:
        counters = wiring.open_counters(store_url, data_dir=chosen.data_dir)
    except InvalidSettings as error:
        msg = f"HEADGATE_REDIS_URL is malformed: {error}"
        raise InvalidSettings(msg) from error
    rules_here = None if chosen.database_url else chosen.rules_file
    limiter = Limiter(counters.store, *wiring.rest_of(store_url, rules_here))
    uvloop.run(_run(limiter, counters, chosen, free_address(chosen.host, chosen.port)))


async def _run(limiter: Limiter, counters: Counters, chosen: Settings, address: Address) -> None:
    ending = Ending(chosen.notice_seconds, chosen.drain_seconds)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(limiter)
        if isinstance(limiter.store, EmbeddedStore):
            await limiter.store.connect()  # what is wrong with it is better known now than at the first check
        control = admin_address = None
        if chosen.database_url is not None:
            # Here, because it takes as long to import as all the rest.
            from headgate.wiring.control import ControlPlane, serving  # noqa: PLC0415 (see above)

            admin_address = free_address(chosen.admin_host, chosen.admin_port)
            file = None if chosen.rules_file is None else RulesFile(chosen.rules_file)
            control = ControlPlane(chosen, counters, limiter, file)
            await stack.enter_async_context(serving(control, admin_address))
        service = DecisionService(
            limiter,
            identity=None if control is None else control.identity,
            has_rules=(lambda: True) if control is None else control.is_ready,
            body_limit=chosen.body_limit,
            body_seconds=chosen.body_seconds,
        )
        await serve_http(service, address, ending, lambda: announce(limiter, control, chosen, address, admin_address))
