"""`headgate simulate`: replays past traffic against draft rules."""

import asyncio
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import current_thread, main_thread
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate.adapters import zones
from headgate.adapters.clock import monotonic, wall_clock
from headgate.adapters.rules_file import RulesFiles
from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Limit, Text, Token, Url, moment_of, settings
from headgate.cli.output import complain, print_json
from headgate.cli.output_file import Force, write_file
from headgate.cli.simulation_tables import print_report
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import RuleSet
from headgate.core.units import DAY, SECOND, Micros, parse_duration
from headgate.errors import InvalidRequest, InvalidRules, InvalidSettings, short_repr
from headgate.settings import Settings
from headgate.simulate.log_lines import ATTRIBUTE, FIELDS
from headgate.simulate.plot import is_plot, plot_svg
from headgate.simulate.report import longest_window, notes, report
from headgate.simulate.sampling import sampling
from headgate.simulate.simulation import Simulation
from headgate.simulate.sources import EVENTS, open_traffic
from headgate.simulate.traffic import Span

FAILED: Final = 1
DIFFERENT: Final = 2
CURRENT: Final = "current"
_FOREVER: Final[Micros] = 253_402_300_799 * SECOND


def simulate(
    context: typer.Context,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rules", metavar="FILE", help="The draft rules; several files form one rule set."),
    ] = None,
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="events|archive|FILE",
            help="Recorded events, archived ones, an access log, JSON lines, or a folder of Parquet files.",
        ),
    ] = EVENTS,
    since: Annotated[Text, typer.Option(metavar="WHEN", help="Start: a time, or a span ago such as 24h.")] = None,
    until: Annotated[Text, typer.Option(metavar="WHEN", help="End: a time, or a span ago.")] = None,
    warm_up: Annotated[
        Text,
        typer.Option(
            metavar="SPAN",
            help="Traffic before --since that fills the counters; by default the longest window, up to 1d.",
        ),
    ] = None,
    against: Annotated[
        Text, typer.Option(metavar="FILE|current", help="Rules to compare with: a file, or the active ones.")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="Where JSON lines have a field, such as user=auth.sub. Can be repeated."
        ),
    ] = None,
    plot: Annotated[
        Text, typer.Option(metavar="FILE.svg", help="Write a plot of requests and denials over time.")
    ] = None,
    limit: Limit = 10,
    url: Url = None,
    token: Token = None,
    *,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Compare also if only a sample of the admissions was recorded.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Replay past traffic against draft rules, on virtual time, and show what would have been denied.

    No other counters change. Exit code 0: success. 1: failure, no request found, or not compared with --against
    because the events are a sample. 2: the decisions differ from those of --against.
    """
    if context.invoked_subcommand is not None:
        return 0
    if not rules:
        msg = "name the draft rules with --rules FILE, or simulate a deployment: headgate simulate topology"
        raise InvalidRequest(msg)
    fields = _fields(field)
    draft = _draft(rules)
    compared = None if against is None else _against(against, url, token)
    chosen = settings()
    if origin == EVENTS and chosen.database_url is None and not (chosen.data_dir / "postgres").is_dir():
        msg = "events are read from the database itself; set HEADGATE_DATABASE_URL, or name a file with --from"
        raise InvalidSettings(msg)
    sets = [each[1] for each in (draft, compared) if each is not None]
    span = _span(origin, since, until, warm_up, sets)
    simulation = Simulation(draft, compared, span)
    found, seconds = asyncio.run(_run(chosen, simulation, origin, span, fields, limit, sampled=sampled))
    if as_json:
        print_json(found)
    if not found["requests"]:
        complain(*_no_requests(found))
        return FAILED
    if plot is not None:
        _draw(found, plot, force=force)
    if not as_json:
        print_report(found, seconds)
    if against is not None and found["difference"] is None:
        complain("not compared with --against, because the events are a sample; --sampled compares all the same")
        return FAILED
    difference = found["difference"]
    return DIFFERENT if difference and (difference["newly_denied"] or difference["no_longer_denied"]) else 0


async def _run(
    chosen: Settings,
    simulation: Simulation,
    origin: str,
    span: Span,
    fields: dict[str, str],
    limit: int,
    *,
    sampled: bool,
) -> tuple[dict[str, Any], float]:
    """The report, and the seconds it took."""
    _enable_interrupts()
    started = monotonic()
    with _bar() as bar:
        task = bar.add_task("replaying", total=1.0, rate="")

        def show(read: int, share: float) -> None:
            rate = 60 * read / max(0.001, monotonic() - started)
            bar.update(task, completed=share, rate=f"{read:,} events, {rate / 1e6:.1f} million/min")

        async with open_traffic(chosen, origin, span, fields) as traffic:
            replay = await simulation.run(traffic, show)
            source = traffic.source
    sample = sampling(replay, source.decided)
    found = {
        "from": origin,
        "sampled": None if sample is None else sample.as_dict(),
        **report(replay, limit, compares=sample is None or sampled),
        "skipped": {"lines": source.skipped.count, "examples": source.skipped.examples},
    }
    found["notes"] = notes(
        replay,
        skipped=source.skipped.count,
        whole_seconds=source.has_whole_seconds,
        ran_full=simulation.ran_full,
        warmed=span.since - span.start,
    )
    return found, monotonic() - started


def _enable_interrupts() -> None:
    """Let ctrl-c stop the replay at once: asyncio delays it until the next await."""
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _no_requests(found: dict[str, Any]) -> list[str]:
    """Why there is no report: a sentence, and the first reasons."""
    where, skipped, undecidable = found["from"], found["skipped"], found["undecidable"]
    unusable = skipped["lines"] + undecidable["requests"]
    if unusable:
        sentence = (
            f"{short_repr(where)} has no request that can be decided; skipped, with the first reasons: {unusable:,}"
        )
        return [sentence, *skipped["examples"], *undecidable["reasons"]]
    if found["warming"]:
        return [f"{short_repr(where)} has no request after --since; {found['warming']:,} are before it"]
    return [f"{short_repr(where)} has no request, or none between --since and --until"]


@contextmanager
def _bar() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bar.disable = not bar.console.is_terminal
    with bar:
        yield bar


def _draft(files: list[str]) -> tuple[str, RuleSet]:
    """The rules in files; problems name their file and line."""
    read = RulesFiles(files)
    try:
        rule_set = parse_rule_set(read.data, zones.zone)
    except InvalidRules as error:
        located = [(read.location(problem.path), problem) for problem in error.problems]
        lines = [f"{location}: {problem}" if location else str(problem) for location, problem in located]
        raise InvalidRules(error.problems, lines) from error
    return ", ".join(files), rule_set


def _against(named: str, url: str | None, token: str | None) -> tuple[str, RuleSet]:
    if named != CURRENT:
        return _draft([named])
    with admin(url, token) as client:
        return "the active rules", parse_rule_set(client.get(at("ruleset")), zones.zone, stored=True)


def _span(origin: str, since: str | None, until: str | None, warm_up: str | None, sets: Iterable[RuleSet]) -> Span:
    """The time span; for events the last day by default."""
    now = wall_clock()
    end = _micros(until, "--until") or (now + 1 if origin == EVENTS else _FOREVER)
    begin = _micros(since, "--since") or (max(1, end - DAY) if origin == EVENTS else 1)
    if end <= begin:
        msg = f"--since is {short_repr(since)}, which is not before --until (now, if it is left out)"
        raise InvalidRequest(msg)
    warming = min(DAY, longest_window(sets)) if warm_up is None else _warm_up(warm_up)
    return Span(max(1, begin - warming), begin, end)


def _micros(text: str | None, option: str) -> Micros | None:
    moment = moment_of(text, option, ahead=False)
    return None if moment is None else max(1, round(datetime.fromisoformat(moment).timestamp() * SECOND))


def _warm_up(text: str) -> Micros:
    return 0 if text == "0" else parse_duration(text)


def _fields(pairs: list[str] | None) -> dict[str, str]:
    """``user=auth.sub`` and ``attribute.region=geo`` by name."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, path = pair.partition("=")
        if not equals or not path or not (name in FIELDS or name.removeprefix(ATTRIBUTE) != name):
            known = ", ".join(FIELDS)
            msg = f"--field is {short_repr(pair)}; write NAME=PATH with one of {known}, or attribute.NAME"
            raise InvalidRequest(msg)
        found[name] = path
    return found


def _draw(found: dict[str, Any], into: str, *, force: bool) -> None:
    write_file(into, plot_svg(found), force=force, is_ours=is_plot)
    sys.stderr.write(f"plot written to {into}\n")
