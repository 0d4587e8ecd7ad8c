"""`headgate demo`: the service with a made-up company on it, so that every page and command has something to show."""

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from headgate.adapters.admin_token import token_file
from headgate.adapters.clock import monotonic, sleep, wall_clock
from headgate.adapters.embedded import EmbeddedPostgres
from headgate.cli.admin_client import open_client
from headgate.cli.diagnosis.running_service import running_service
from headgate.cli.output import console, counted, print_note
from headgate.cli.showcase.scenario import Scenario, read_scenario
from headgate.cli.showcase.seeding import is_seeded, kept_keys, seed
from headgate.cli.showcase.traffic import MAX_PER_SECOND, Traffic
from headgate.errors import HeadgateError, InvalidRequest
from headgate.settings import Settings, apart_from_settings

_PATIENCE: Final = 90.0
_SECONDS_TO_STOP: Final = 30.0
_POLL: Final = 0.1
_MAX_DAYS: Final = 30


def demo(
    rate: Annotated[
        int, typer.Option(min=1, max=MAX_PER_SECOND, metavar="NUMBER", help="Requests a second, on average.")
    ] = 40,
    days: Annotated[
        int, typer.Option(min=0, max=_MAX_DAYS, metavar="NUMBER", help="How many days of the past are made up.")
    ] = 7,
    port: Annotated[int, typer.Option(min=1, max=65_535, metavar="NUMBER", help="The decision service.")] = 8080,
    admin_port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="NUMBER", help="The admin API and the dashboard.")
    ] = 8081,
    grpc_port: Annotated[
        int, typer.Option(min=1, max=65_535, metavar="NUMBER", help="Envoy's rate-limit service.")
    ] = 8082,
    data_dir: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the demo keeps its data; delete it to begin anew.")
    ] = Path(".headgate-demo"),
    seconds: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="End after so many seconds of traffic.", show_default=False),
    ] = None,
) -> int:
    """Run the service with sample rules, users and traffic, on servers and data of its own, until ctrl-c.

    The company is made up: a few steady customers, developers, a scraper, a login attack, a batch job and a
    marketing peak. No setting from the environment is used, so no other database is ever written to.
    """
    if len({port, admin_port, grpc_port}) < 3:  # noqa: PLR2004 (each has its own)
        msg = "--port, --admin-port and --grpc-port are three different ports"
        raise InvalidRequest(msg)
    scenario = read_scenario()
    chosen = Settings(
        port=port, admin_port=admin_port, admin_url=f"http://127.0.0.1:{admin_port}", data_dir=data_dir.absolute()
    )
    if running_service(chosen) is not None:
        msg = f"a service runs on port {port} already; stop it, or choose other ports"
        raise HeadgateError(msg)
    # A supervisor's signal ends it as ctrl-c does, for the service is a child process and would stay behind; and a
    # shell that starts it in the background leaves ctrl-c ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with _service(chosen, grpc_port):
            factor = rate / scenario.rate
            past = _Past(scenario, chosen, factor, days)
            if _prepared(scenario, chosen):
                past.start()
            _tell(scenario, chosen, rate)
            try:
                _send(scenario, chosen, factor, seconds, past)
            finally:
                past.stop()
    except KeyboardInterrupt:
        print_note("The demo has ended. Its data stays, for the next time.")
    return 0


@contextmanager
def _service(chosen: Settings, grpc_port: int) -> Iterator[None]:
    """`headgate serve` in a child process; it gets ctrl-c from the terminal, too."""
    changes = {
        "redis_url": "embedded://",
        "database_url": "embedded://",
        "data_dir": str(chosen.data_dir),
        "log_level": "warning",
        "notice_seconds": "0",
    }
    ports = ("--port", str(chosen.port), "--admin-port", str(chosen.admin_port), "--grpc-port", str(grpc_port))
    command = [sys.executable, "-m", "headgate.cli.main", "serve", *ports]
    process = subprocess.Popen(command, env=apart_from_settings(changes))  # noqa: S603 (our own command)
    try:
        deadline = monotonic() + _PATIENCE
        while (running := running_service(chosen)) is None or not running.is_ready:
            if process.poll() is not None or monotonic() > deadline:
                msg = "the service has not started; its output is above"
                raise HeadgateError(msg)
            sleep(_POLL)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _with_token(chosen: Settings) -> Settings:
    token = token_file(chosen.data_dir).read_text(encoding="ascii").strip()
    return Settings(admin_url=chosen.admin_url, admin_token=token)


def _prepared(scenario: Scenario, chosen: Settings) -> bool:
    """Enter the company, unless an earlier run has; returns whether it was entered now."""
    if is_seeded(chosen.data_dir):
        print_note(f"The company in {chosen.data_dir} is that of an earlier run; delete the folder to begin anew.")
        return False
    with open_client(_with_token(chosen)) as client:
        seed(client, scenario, chosen.data_dir)
    return True


class _Past:
    """The past, made up in a thread beside the traffic, so that there is something to see at once."""

    def __init__(self, scenario: Scenario, chosen: Settings, rate: float, days: int) -> None:
        """Nothing is made yet."""
        self._scenario, self._chosen, self._rate, self._days = scenario, chosen, rate, days
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure = ""
        self._is_reported = False
        self.share = 0.0
        """How much of it is done."""
        self.made = ""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End it, wherever it is."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    def news(self) -> str | None:
        """What is to be said of it once it is made, or cannot be; None before, and afterwards."""
        if self._is_reported or self._thread.is_alive() or not (self.made or self._failure):
            return None
        self._is_reported = True
        return self.made or self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._store())
        except HeadgateError as error:
            self._failure = f"The past could not be made up: {error}"

    async def _store(self) -> None:
        # Here, because it needs the driver of the database, which a mistaken option needs not.
        from headgate.adapters.postgres import Database  # noqa: PLC0415 (see above)
        from headgate.cli.showcase.past import slices, store_past  # noqa: PLC0415 (see above)

        wanted = slices(wall_clock(), self._days)
        done = itertools.count(1)

        def on_done() -> bool:
            self.share = next(done) / len(wanted)
            return not self._ends.is_set()

        database = Database(EmbeddedPostgres(self._chosen.data_dir / "postgres").url)
        try:
            made = await store_past(self._scenario, database, wanted, self._rate, on_done)
        finally:
            await database.close()
        self.made = (
            f"Made up: {counted(self._days, 'day')} with {made.requests:,} requests and {made.events:,} events, "
            "decided by the same rules on virtual time: one minute of every three hours, counted for all of them."
        )


def _tell(scenario: Scenario, chosen: Settings, rate: int) -> None:
    out = console()
    out.print(Text(f"\nParcelwise, a made-up company, gets {rate} requests a second:", "bold"))
    for caller in scenario.callers:
        share = caller.rate / scenario.rate * rate
        out.print(Text.assemble(f"  {share:5.1f}/s  ", (f"{caller.name}: ", "bold"), caller.kind), soft_wrap=True)
    file = token_file(chosen.data_dir)
    out.print(Text("\n  # watch it", "dim"))
    watch = f"headgate top --url {chosen.admin_url} --token $(cat {file})"
    out.print(Text(f"  {watch}", "green"), soft_wrap=True)
    out.print(Text("\n  ctrl-c stops it\n", "dim"))


def _send(scenario: Scenario, chosen: Settings, rate: float, seconds: int | None, past: _Past) -> None:
    """Send traffic until interrupted, or for so many seconds; on a terminal one line says how it goes."""
    out = console()
    traffic = Traffic(f"http://127.0.0.1:{chosen.port}", scenario, kept_keys(chosen.data_dir), rate, sleep)
    with out.status("", spinner="dots") as line:
        try:
            for number, answers in enumerate(traffic.seconds(), 1):
                if number == seconds:
                    break
                if (news := past.news()) is not None:
                    print_note(news)
                line.update(_in_words(answers, past.share))
        finally:
            traffic.close()
            total = traffic.answers
            line.stop()
            print_note(f"{total.total():,} requests were sent, {total['denied']:,} denied.")


def _in_words(answers: Counter[str], made: float) -> str:
    parts = [f"{answers.total():4} requests/s: {answers['allowed']} allowed, {answers['denied']} denied"]
    if answers["unanswered"]:
        parts.append(f"{answers['unanswered']} without an answer")
    if 0 < made < 1:
        parts.append(f"the past is made up: {made:.0%}")
    return ", ".join(parts)
