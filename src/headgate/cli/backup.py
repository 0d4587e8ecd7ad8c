"""`headgate backup` and `headgate restore`: the database, and on request the counters, as files in a folder or S3."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate import __version__
from headgate.adapters.clock import wall_clock
from headgate.cli.options import Json, settings
from headgate.cli.output import complain, counted, moment, print_done, print_json, print_note, print_rows
from headgate.errors import ArchiveError, Conflict, HeadgateError, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.adapters.object_store import ObjectStore
    from headgate.adapters.redis.counter_copies import Restored
    from headgate.backup.manifest import Manifest
    from headgate.backup.restorer import Outcome
    from headgate.settings import Settings

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_THOUSAND: Final = 1000
Report: TypeAlias = Callable[[int, int], None]
"""Takes how much is done, and the total."""

From: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URL",
        help="Where the backup is: a folder, or s3://bucket/folder; by default HEADGATE_ARCHIVE_URL.",
    ),
]
Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a backup, or latest.", show_default=False)
]


def backup(
    context: typer.Context,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="A folder, or s3://bucket/folder; by default HEADGATE_ARCHIVE_URL."),
    ] = None,
    *,
    without_events: Annotated[bool, typer.Option("--without-events", help="Without the events, which are many.")] = (
        False
    ),
    redis: Annotated[bool, typer.Option("--redis", help="Back up the counters too.")] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            metavar="N",
            min=1,
            help="Then delete all but the newest N of this database of the same kind: with or without events, with or "
            "without counters. Incomplete ones of killed runs too, when they are a day old.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Back up the whole database as of one moment. Reads HEADGATE_DATABASE_URL directly.

    Rules, tiers, users, keys, blocks, tokens and all changes; metrics, usage and events. Keys and
    tokens are stored as hashes and stay valid. Decisions and changes continue meanwhile.
    """
    if context.invoked_subcommand is not None:
        return 0
    chosen = settings()
    if chosen.database_url is None and not (chosen.data_dir / "postgres").is_dir():
        msg = "there is no database to back up; set HEADGATE_DATABASE_URL"
        raise InvalidSettings(msg)
    incomplete: list[str] = []
    if keep is not None:
        # First, to make room; if it fails, a backup is worth more, and the second attempt below tells.
        with suppress(HeadgateError):
            incomplete += asyncio.run(_delete_incomplete(chosen, to))
    with progress_bar("backing up", show=not as_json) as progress:
        made, url = asyncio.run(_create(chosen, to, progress, with_events=not without_events, with_counters=redis))
    deleted: Sequence[str] = ()
    try:
        if keep is not None:
            incomplete += asyncio.run(_delete_incomplete(chosen, to))
            deleted = asyncio.run(_delete_old(chosen, to, made, keep))
    except HeadgateError as error:
        msg = f"the backup {made.name} is whole, but older ones could not be deleted: {error}"
        raise ArchiveError(msg) from error
    if as_json:
        print_json(_summary(made) | {"place": url} | ({} if keep is None else {"deleted": [*incomplete, *deleted]}))
    else:
        rows = sum(file.count for file in made.tables)
        counters = f", {counted(made.counters.count, 'counter')}" if made.counters else ""
        print_done("backed up", f"{made.name}: {counted(rows, 'row')}{counters}, {bytes_in_words(made.size)}, in {url}")
        if deleted:
            print_done("deleted", ", ".join(deleted))
        if incomplete:
            runs = "a killed run" if len(incomplete) == 1 else "killed runs"
            print_done("deleted", f"{', '.join(incomplete)} (incomplete, of {runs})")
    return 0


async def _delete_old(chosen: "Settings", to: str | None, made: "Manifest", keep: int) -> "Sequence[str]":
    from headgate.backup import catalog, factory  # noqa: PLC0415 (see `_create`)

    return await catalog.delete_old(factory.backup_store(chosen, to), made, keep)


async def _delete_incomplete(chosen: "Settings", to: str | None) -> "Sequence[str]":
    from headgate.backup import catalog, factory  # noqa: PLC0415 (see `_create`)

    return await catalog.delete_incomplete(factory.backup_store(chosen, to), wall_clock())


async def _create(
    chosen: "Settings", to: str | None, progress: Report, *, with_events: bool, with_counters: bool
) -> "tuple[Manifest, str]":
    # Imported here: a database is an extra, and only these verbs need it.
    from headgate.backup import factory  # noqa: PLC0415 (as said above)

    store = factory.backup_store(chosen, to)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(factory.database_of(chosen))
        counters = await stack.enter_async_context(factory.counters_of(chosen)) if with_counters else None
        from headgate.backup.writer import create  # noqa: PLC0415 (the database is there, so its package is)

        made = await create(database, store, counters, progress, version=__version__, with_events=with_events)
        return made, store.url


def list_backups(from_: From = None, *, as_json: Json = False) -> int:
    """List the backups, the newest first. Unfinished backups are not listed."""
    manifests, sentences = asyncio.run(_list(from_))
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


async def _list(url: str | None) -> "tuple[list[Manifest], list[str]]":
    from headgate.backup import catalog, factory  # noqa: PLC0415 (see `_create`)

    manifests, sentences = await catalog.list_backups(factory.backup_store(settings(), url))
    return list(manifests), list(sentences)


def verify(name: Name, from_: From = None, *, as_json: Json = False) -> int:
    """Read a whole backup and check every file against its checksum. Exit code 0: whole. 1: damaged."""
    with progress_bar("verifying", show=not as_json) as progress:
        manifest = asyncio.run(_verify(name, from_, progress))
    if as_json:
        print_json(_summary(manifest) | {"whole": True})
    else:
        print_done("whole", f"{manifest.name}: {counted(len(manifest.files), 'file')}, {bytes_in_words(manifest.size)}")
    return 0


async def _verify(name: str, url: str | None, progress: Report) -> "Manifest":
    from headgate.backup import catalog, factory  # noqa: PLC0415 (see `_create`)

    store = factory.backup_store(settings(), url)
    manifest = await catalog.find(store, name)
    await catalog.verify(store, manifest, progress)
    return manifest


@contextmanager
def progress_bar(what: str, *, show: bool = True) -> Iterator[Report]:
    """A progress bar on a terminal; yields a function that takes how much is done, and the total."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bar.disable = not show or not bar.console.is_terminal
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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


class _Done(NamedTuple):
    outcome: "Outcome"
    counters: "Restored | None"
    unheard: str | None


def restore(
    name: Name,
    from_: From = None,
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the data in the database by the backup.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before data is replaced.")] = False,
    redis: Annotated[bool, typer.Option("--redis", help="Restore the counters too, except those that exist.")] = False,
    as_json: Json = False,
) -> int:
    """Restore a backup into the database. Writes to HEADGATE_DATABASE_URL directly.

    Every file is verified first. Then everything happens in one transaction: if it fails, the database
    is unchanged. Running processes use the restored data within a second.
    """
    from headgate.backup.factory import backup_store  # noqa: PLC0415 (a database is an extra)

    chosen = settings()
    store = backup_store(chosen, from_)
    with progress_bar("verifying", show=not as_json) as progress:
        manifest = asyncio.run(_verified(chosen, store, name, progress, with_counters=redis))
    if replace and not yes:
        _confirm(chosen, manifest)
    with progress_bar("restoring", show=not as_json) as progress:
        done = asyncio.run(_restore(chosen, store, manifest, progress, replace=replace, with_counters=redis))
    if done.unheard is not None:
        complain(f"running processes could not be notified, and see the change at their next poll: {done.unheard}")
    if as_json:
        counters = None if done.counters is None else done.counters._asdict()
        print_json({"name": manifest.name, **done.outcome._asdict(), "counters": counters})
        return 0
    print_done("restored", f"{manifest.name}: {counted(done.outcome.rows, 'row')}, of {manifest.at[:19]} UTC")
    if done.outcome.migrated:
        print_note(f"The backup had schema {manifest.schema}; it was migrated.")
    if done.counters is not None:
        restored, kept, ended = done.counters
        print_note(f"{counted(restored, 'counter')} restored; {kept} exist and were kept; {ended} had expired.")
    return 0


async def _verified(
    chosen: "Settings", store: "ObjectStore", name: str, progress: Report, *, with_counters: bool
) -> "Manifest":
    from headgate.backup import catalog, factory, restorer  # noqa: PLC0415 (a database is an extra)

    origin = None
    if name == catalog.LATEST:
        async with factory.database_of(chosen) as database:
            origin = await restorer.origin_of(database)
    manifest = await catalog.find(store, name, origin)
    restorer.check_version(manifest)
    if with_counters and manifest.counters is None:
        msg = f"the backup {manifest.name} has no counters; restore it without --redis"
        raise ArchiveError(msg)
    await catalog.verify(store, manifest, progress)
    return manifest


def _confirm(chosen: "Settings", manifest: "Manifest") -> None:
    """Ask before data is replaced; raises `Conflict` without a yes."""
    if not asyncio.run(_in_use(chosen)):
        return
    if not sys.stdin.isatty():
        msg = "--replace deletes the data in the database, and there is no terminal to ask; add --yes"
        raise Conflict(msg)
    if not typer.confirm(f"Replace the data in the database by {manifest.name}, of {manifest.at[:19]} UTC?", err=True):
        msg = "nothing was restored"
        raise Conflict(msg)


async def _in_use(chosen: "Settings") -> bool:
    from headgate.backup import factory, restorer  # noqa: PLC0415 (a database is an extra)

    async with factory.database_of(chosen) as database:
        return await restorer.in_use(database)


async def _restore(
    chosen: "Settings",
    store: "ObjectStore",
    manifest: "Manifest",
    progress: Report,
    *,
    replace: bool,
    with_counters: bool,
) -> _Done:
    from headgate.backup import factory, restorer  # noqa: PLC0415 (a database is an extra)

    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(factory.database_of(chosen))
        copies = await stack.enter_async_context(factory.counters_of(chosen)) if with_counters else None
        outcome = await restorer.restore(database, store, manifest, progress, replace=replace)
        unheard = await factory.announce(chosen, database)
        counters = None
        if copies is not None and manifest.counters is not None:
            try:
                counters = await restorer.restore_counters(copies, store, manifest, manifest.counters, progress)
            except HeadgateError as error:
                msg = f"the database is restored, but not all counters: {error}"
                raise ArchiveError(msg) from error
        return _Done(outcome, counters, unheard)
