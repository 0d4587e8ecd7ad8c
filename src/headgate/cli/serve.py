"""`headgate serve`: the decision service, until it is told to stop."""

import logging
import sys
from textwrap import indent
from typing import Annotated

import typer
import uvloop
from rich.text import Text

from headgate import __version__, wiring
from headgate.adapters.embedded import EmbeddedStore
from headgate.cli.environment import settings
from headgate.cli.output import console, counted
from headgate.cli.trial import trials
from headgate.edge.http.server import Address, Ending, free_address
from headgate.edge.http.server import serve as serve_http
from headgate.edge.http.service import DecisionService
from headgate.errors import InvalidSettings
from headgate.facade import Limiter
from headgate.ports import CounterStore, LocalStore
from headgate.settings import Settings

_IN_THIS_PROCESS = "memory:"


def serve(
    rules: Annotated[str | None, typer.Option(metavar="FILE", help="The YAML file with the rules.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; 127.0.0.1 unless told.")] = None,
    port: Annotated[str | None, typer.Option(metavar="NUMBER", help="The port to listen on; 8080 unless told.")] = None,
    workers: Annotated[str | None, typer.Option(metavar="NUMBER", help="How many processes answer.")] = None,
) -> None:
    """Run the decision service. Each option can also be set as HEADGATE_RULES_FILE, HEADGATE_HOST, and so on.

    A rules file that changes is picked up; a broken one is refused, and the rules in force stay.
    SIGTERM ends the service in order: /readyz says 503, then requests under way are finished.
    """
    chosen = settings(rules_file=rules, host=host, port=port, workers=workers)
    logging.basicConfig(
        level=chosen.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    if chosen.rules_file is None:
        msg = "there are no rules to decide by; write --rules FILE, or set HEADGATE_RULES_FILE"
        raise InvalidSettings(msg)
    if chosen.workers > 1:
        many = chosen.workers
        msg = f"{many} workers on memory:// would each count by themselves and admit {many} times every limit; use one"
        if not chosen.redis_url.startswith(_IN_THIS_PROCESS):
            msg = f"{many} workers are more than this version can start; use one, or start the service several times"
        raise InvalidSettings(msg)
    try:
        limiter = Limiter(*wiring.parts(chosen.redis_url, chosen.rules_file, data_dir=chosen.data_dir))
    except InvalidSettings as error:
        msg = f"HEADGATE_REDIS_URL is malformed: {error}"
        raise InvalidSettings(msg) from error
    uvloop.run(_run(limiter, chosen, free_address(chosen.host, chosen.port)))


async def _run(limiter: Limiter, chosen: Settings, address: Address) -> None:
    service = DecisionService(limiter, body_limit=chosen.body_limit, body_seconds=chosen.body_seconds)
    ending = Ending(chosen.notice_seconds, chosen.drain_seconds)
    async with limiter:
        if isinstance(limiter.store, EmbeddedStore):
            await limiter.store.connect()  # what is wrong with it is better known now than at the first check
        await serve_http(service, address, ending, lambda: _announce(limiter, chosen, address))


def _announce(limiter: Limiter, chosen: Settings, address: Address) -> None:
    rule_set = limiter.snapshots.current.rule_set
    out = console()

    def line(label: str, text: str) -> None:
        out.print(Text.assemble((f"  {label:<7}", "dim"), text), soft_wrap=True)

    out.print(Text.assemble((f"headgate {__version__}", "bold"), " listens on ", (address.url, "bold cyan")))
    line("rules", f"{chosen.rules_file} ({counted(len(rule_set.rules), 'rule')}; changes are picked up)")
    line("store", f"{chosen.redis_url.partition(':')[0]} ({_how_long(limiter.store)})")
    out.print()
    for purpose, command in trials(rule_set, address.url):
        out.print(Text(f"  # {purpose}", "dim"), soft_wrap=True)
        out.print(Text(indent(command, "  "), "green"), soft_wrap=True)
    out.print()
    out.print(Text("  ctrl-c stops it", "dim"))
    sys.stdout.flush()


def _how_long(store: CounterStore) -> str:
    """What becomes of the counters."""
    if isinstance(store, EmbeddedStore):
        return f"counters are kept in {store.server.folder}"
    return "counters end with this process" if isinstance(store, LocalStore) else "counters are kept there"
