"""`headgate restore`: a backup back into the database, and on request into Redis."""

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headgate.cli.backup import From, Name, progress_bar
from headgate.cli.options import Json, settings
from headgate.cli.output import complain, counted, print_done, print_json, print_note
from headgate.errors import ArchiveError, Conflict, HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.object_store import ObjectStore
    from headgate.adapters.redis.counter_copies import Restored
    from headgate.backup.manifest import Manifest
    from headgate.backup.restorer import Outcome
    from headgate.settings import Settings

    Progress = Callable[[int, int], None]


class _Done(NamedTuple):
    outcome: "Outcome"
    counters: "Restored | None"
    unheard: str | None


def restore(
    name: Name,
    from_: From = None,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put the backup in the place of what is in the database.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before something is replaced.")] = False,
    redis: Annotated[
        bool, typer.Option("--redis", help="Restore the counters too, except those that are there.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make the database what it was when a backup was made. Works on HEADGATE_DATABASE_URL itself.

    Every file is verified first. Then everything happens in one transaction: whatever goes wrong, the
    database is as it was. Processes that are running work by what was restored within a second.
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
        complain(f"running processes could not be told, and find out when they look next: {done.unheard}")
    if as_json:
        counters = None if done.counters is None else done.counters._asdict()
        print_json({"name": manifest.name, **done.outcome._asdict(), "counters": counters})
        return 0
    print_done("restored", f"{manifest.name}: {counted(done.outcome.rows, 'row')}, of {manifest.at[:19]} UTC")
    if done.outcome.migrated:
        print_note(f"It was of schema {manifest.schema}, and is up to date now.")
    if done.counters is not None:
        restored, kept, ended = done.counters
        print_note(f"{counted(restored, 'counter')} restored; {kept} were there and stay; {ended} had ended.")
    return 0


async def _verified(
    chosen: "Settings", store: "ObjectStore", name: str, progress: "Progress", *, with_counters: bool
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
    """Ask whether what is in the database may go, if there is something; raises `Conflict` if nobody says so."""
    if not asyncio.run(_in_use(chosen)):
        return
    if not sys.stdin.isatty():
        msg = "--replace takes away what is in the database, and nobody is there to be asked; write --yes too"
        raise Conflict(msg)
    if not typer.confirm(f"Replace what is in the database by {manifest.name}, of {manifest.at[:19]} UTC?", err=True):
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
    progress: "Progress",
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
