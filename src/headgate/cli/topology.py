"""`headgate simulate topology`: what a deployment asks of Redis, admits and waits for, on virtual time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.cli.options import Json
from headgate.cli.output import print_json, print_note, print_rows
from headgate.errors import InvalidRequest, short_repr
from headgate.simulate.topology.deployment import Deployment, Mode
from headgate.simulate.topology.layers import run_deployment
from headgate.simulate.topology.report import report

_DEFAULT: Final = Deployment()
_ALL: Final = ",".join(mode.value.replace(" ", "-") for mode in Mode)
_COLUMNS: Final = (
    *("mode", "limit of", "Redis ops/s", "a request", "cores", "hottest key", "over", "worst", "under"),
    *("no Redis", "p50 ms", "p99 ms"),
)


def topology(
    rate: Annotated[float, typer.Option(help="Requests a second, of all regions.")] = _DEFAULT.rate,
    users: Annotated[int, typer.Option(help="Users, each with a counter.")] = _DEFAULT.users,
    rules: Annotated[int, typer.Option(help="Rules, each with a counter for all users.")] = _DEFAULT.rules,
    regions: Annotated[
        str, typer.Option(metavar="N,N,…", help="The regions, the home first: how their traffic compares.")
    ] = "3,2,1",
    processes: Annotated[
        int, typer.Option(help="Of all regions; 0 is one for each 20,000 requests a second.")
    ] = _DEFAULT.processes,
    skew: Annotated[float, typer.Option(help="The exponent of Zipf's law, for users and rules.")] = _DEFAULT.skew,
    round_trip: Annotated[float, typer.Option(metavar="MS", help="To the Redis of the region.")] = 0.5,
    between: Annotated[float, typer.Option(metavar="MS", help="A round trip to another region.")] = 160.0,
    window: Annotated[int, typer.Option(metavar="SECONDS", help="The period of all limits.")] = _DEFAULT.window,
    windows: Annotated[int, typer.Option(help="How many windows are counted, after 2 seconds.")] = _DEFAULT.windows,
    user_limit: Annotated[int, typer.Option(help="Requests of a user in a window.")] = _DEFAULT.user_limit,
    gossip_seconds: Annotated[float, typer.Option(help="As HEADGATE_GOSSIP_SECONDS.")] = _DEFAULT.gossip_seconds,
    redis_micros: Annotated[
        float, typer.Option(help="Processor time of Redis for an operation, as measured on your machine.")
    ] = _DEFAULT.redis_micros,
    modes: Annotated[str, typer.Option(metavar="MODE,…", help="Which modes.")] = _ALL,
    jobs: Annotated[int, typer.Option(help="Processors to use; 0 is all.")] = 0,
    seed: Annotated[int, typer.Option(help="Another one gives other requests.")] = _DEFAULT.seed,
    *,
    as_json: Json = False,
) -> None:
    """Simulate a deployment: Redis operations, over- and under-admission, and latency, for each mode of `spread`.

    The stores are the real ones, on virtual time; servers, network and traffic are simulated. Minutes for millions of
    requests a second.
    """
    deployment = Deployment(
        *(rate, users, rules, _weights(regions), processes, skew, round_trip / 1e3, between / 1e3, window, windows),
        user_limit=user_limit,
        gossip_seconds=gossip_seconds,
        redis_micros=redis_micros,
        seed=seed,
    )
    chosen = _modes(modes)
    with _bar() as progress:
        found = report(deployment, [*run_deployment(deployment, chosen, progress, jobs)])
    if as_json:
        print_json(found)
    else:
        _print(found)


def _weights(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        msg = f"--regions is {short_repr(text)}; write whole numbers such as 3,2,1, one for each region"
        raise InvalidRequest(msg) from None


def _modes(text: str) -> list[Mode]:
    try:
        return [Mode(each.replace("-", " ")) for each in text.split(",")]
    except ValueError:
        msg = f"--modes is {short_repr(text)}; write some of {_ALL}"
        raise InvalidRequest(msg) from None


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.disable = not bar.console.is_terminal
    with bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(task, description=text, completed=done, total=total)


def _print(found: dict[str, Any]) -> None:
    deployment, simulated = found["deployment"], found["simulated"]
    listed = ", ".join(f"{name} {many}" for name, many in deployment["processes"].items())
    print_note(
        f"{deployment['rate']:,.0f} requests/s, {deployment['users']:,} users, {deployment['rules']:,} rules; "
        f"processes: {listed}"
    )
    print_rows(_COLUMNS, [_cells(row) for row in found["modes"]])
    print_note(
        f"the first {simulated['one_by_one']} counters of each kind one by one, the others sampled: "
        f"{simulated['users']} users and {simulated['rules']} rules simulated, {simulated['seconds']} s each"
    )
    impossible = [row["mode"] for row in found["modes"] if not row["is_possible"]]
    if impossible:
        print_note(f"one key needs more than a core, so it cannot work: {', '.join(impossible)}")


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["mode"],
        row["limit_of"],
        f"{row['redis_operations_per_second']:,.0f}",
        f"{row['operations_per_request']:.3f}",
        f"{row['redis_cores']:.1f}",
        f"{row['hottest_key_operations_per_second']:,.0f}/s",
        f"{row['over']:.2%}",
        f"{max(0.0, row['worst_over']):.1%}",
        f"{row['under']:.2%}",
        f"{row['without_redis']:.1%}",
        f"{row['p50_ms']:.2f}",
        f"{row['p99_ms']:.2f}",
    ]
