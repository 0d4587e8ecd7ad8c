"""`headgate backup`: everything in the database, and on request the counters, as files in a folder or in S3."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate import __version__
from headgate.cli.options import Json, settings
from headgate.cli.output import complain, counted, moment, print_done, print_json, print_rows
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from headgate.backup.manifest import Manifest
    from headgate.settings import Settings

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_THOUSAND: Final = 1000

From: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URL",
        help="Where the backup is: a folder, or s3://bucket/folder; HEADGATE_ARCHIVE_URL unless told.",
    ),
]
Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a backup, or latest.", show_default=False)
]


def backup(
    context: typer.Context,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="A folder, or s3://bucket/folder; HEADGATE_ARCHIVE_URL unless told."),
    ] = None,
    *,
    without_events: Annotated[bool, typer.Option("--without-events", help="Leave out the events, which are many.")] = (
        False
    ),
    redis: Annotated[bool, typer.Option("--redis", help="Copy the counters too.")] = False,
    as_json: Json = False,
) -> int:
    """Copy everything that the database holds, as it is at one moment. Works on HEADGATE_DATABASE_URL itself.

    Rules, tiers, users, keys, blocks, tokens and all changes; metrics, usage and events. Keys and
    tokens are hashes there, and stay good. Deciding goes on meanwhile, and so do changes.
    """
    if context.invoked_subcommand is not None:
        return 0
    chosen = settings()
    if chosen.database_url is None and not (chosen.data_dir / "postgres").is_dir():
        msg = "there is no database to back up; set HEADGATE_DATABASE_URL"
        raise InvalidSettings(msg)
    with progress_bar("backing up", show=not as_json) as progress:
        made, url = asyncio.run(_make(chosen, to, progress, with_events=not without_events, with_counters=redis))
    if as_json:
        print_json(_summary(made) | {"place": url})
    else:
        rows = sum(file.count for file in made.tables)
        counters = f", {counted(made.counters.count, 'counter')}" if made.counters else ""
        print_done("backed up", f"{made.name}: {counted(rows, 'row')}{counters}, {bytes_in_words(made.size)}, in {url}")
    return 0


async def _make(
    chosen: "Settings", to: str | None, progress: Callable[[int, int], None], *, with_events: bool, with_counters: bool
) -> "tuple[Manifest, str]":
    # Imported here, because a database is an extra, and only these verbs need all of this.
    from headgate.backup import factory  # noqa: PLC0415 (as said above)

    store = factory.backup_store(chosen, to)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(factory.database_of(chosen))
        counters = await stack.enter_async_context(factory.counters_of(chosen)) if with_counters else None
        from headgate.backup.writer import make  # noqa: PLC0415 (the database is there, so its package is)

        made = await make(database, store, counters, progress, version=__version__, with_events=with_events)
        return made, store.url


def list_backups(from_: From = None, *, as_json: Json = False) -> int:
    """List the backups in a store, the newest first. A backup that was not finished is none."""
    manifests, sentences = asyncio.run(_found(from_))
    for sentence in sentences:
        complain(sentence)
    if as_json:
        print_json([_summary(each) for each in reversed(manifests)])
        return 0
    rows = [
        (
            each.name,
            moment(each.at),
            each.origin[:8],
            each.headgate,
            str(each.schema),
            "yes" if any(file.holds == "events" for file in each.files) else "no",
            "yes" if each.counters else "no",
            bytes_in_words(each.size),
        )
        for each in reversed(manifests)
    ]
    headings = ("name", "of (UTC)", "origin", "headgate", "schema", "events", "counters", "size")
    print_rows(headings, rows, numbers=("schema", "size"), whole=("name",))
    return 0


async def _found(url: str | None) -> "tuple[list[Manifest], list[str]]":
    from headgate.backup import catalog, factory  # noqa: PLC0415 (see `_make`)

    manifests, sentences = await catalog.found(factory.backup_store(settings(), url))
    return list(manifests), list(sentences)


def verify(name: Name, from_: From = None, *, as_json: Json = False) -> int:
    """Read a backup through, and say whether every file is what was written. Exit code 0 is whole, 1 is not."""
    with progress_bar("verifying", show=not as_json) as progress:
        manifest = asyncio.run(_verify(name, from_, progress))
    if as_json:
        print_json(_summary(manifest) | {"whole": True})
    else:
        print_done("whole", f"{manifest.name}: {counted(len(manifest.files), 'file')}, {bytes_in_words(manifest.size)}")
    return 0


async def _verify(name: str, url: str | None, progress: Callable[[int, int], None]) -> "Manifest":
    from headgate.backup import catalog, factory  # noqa: PLC0415 (see `_make`)

    store = factory.backup_store(settings(), url)
    manifest = await catalog.find(store, name)
    await catalog.verify(store, manifest, progress)
    return manifest


@contextmanager
def progress_bar(what: str, *, show: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; what it yields is told how far things are, and how far there is to go."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bar.disable = not show or not bar.console.is_terminal
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda through, total: bar.update(task, completed=through, total=total)


def bytes_in_words(size: float) -> str:
    """``1.2 MB``."""
    for unit in _UNITS[:-1]:
        if size < _THOUSAND:
            return f"{size:.0f} {unit}" if unit == _UNITS[0] else f"{size:.1f} {unit}"
        size /= _THOUSAND
    return f"{size:.1f} {_UNITS[-1]}"


def _summary(manifest: "Manifest") -> dict[str, Any]:
    return {
        "name": manifest.name,
        "at": manifest.at,
        "headgate": manifest.headgate,
        "schema": manifest.schema,
        "lineage": manifest.lineage,
        "origin": manifest.origin,
        "change": manifest.change,
        "size": manifest.size,
        "files": [{"name": file.name, "count": file.count, "size": file.size} for file in manifest.files],
    }
