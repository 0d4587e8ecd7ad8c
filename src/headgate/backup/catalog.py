"""The backups in an object store: listing, finding, verifying and deleting them."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headgate.backup import manifest as manifests
from headgate.backup.streams import verify_file
from headgate.core.units import DAY, SECOND
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.object_store import ObjectStore
    from headgate.backup.manifest import Manifest
    from headgate.core.units import Micros

LATEST: Final = "latest"
_PARTS: Final = 3
_FILE: Final = re.compile(r"backups/(\d{4}-\d\d-\d\dT\d{6}Z)-[0-9a-f]{4}/[a-z0-9_]+\.(copy|dump)\.gz")
"""The files of a backup but its manifest, under the names that `writer` gives them."""


async def list_backups(store: ObjectStore) -> tuple[Sequence[Manifest], Sequence[str]]:
    """All backups in a store, the oldest first, and a reason for each unusable one."""
    manifest_files = [name for name in await asyncio.to_thread(store.names, "backups") if _is_manifest(name)]
    manifests_read, reasons = [], []
    for file in manifest_files:
        try:
            manifests_read.append(await asyncio.to_thread(_read, store, file.split("/")[1]))
        except ArchiveError as error:
            reasons.append(str(error))
    return sorted(manifests_read, key=lambda each: each.at), reasons


async def find(store: ObjectStore, name: str, origin: str | None = None) -> Manifest:
    """The manifest of a backup; `latest` is the newest usable one.

    It must be of the database with this `origin`; without an origin, all backups must be of one database.
    """
    if name != LATEST:
        return await asyncio.to_thread(_read, store, name)
    backups, reasons = await list_backups(store)
    if not backups:
        why = f" that can be used ({reasons[0]})" if reasons else ""
        msg = f"there is no backup{why} in {store.url}"
        raise ArchiveError(msg)
    newest = {each.origin: each for each in backups}
    if origin is None and len(newest) == 1:
        return backups[-1]
    if origin in newest:
        return newest[origin]
    names = ", ".join(f"{each.name} of {each.origin[:8]}" for each in newest.values())
    what = "backups of several databases" if origin is None else f"no backup of this database ({origin[:8]})"
    msg = f"{store.url} has {what}; name the one to use; the newest of each is {names}"
    raise ArchiveError(msg)


async def delete_old(store: ObjectStore, made: Manifest, keep: int) -> Sequence[str]:
    """Delete all backups of the database of `made` but that one and the newest others; returns their names.

    Only backups that hold the same count: one without events replaces none with them. Whatever a clock said, the one
    that was just made stays. A manifest goes first: a backup that is deleted in part is none.
    """
    backups, _ = await list_backups(store)
    others = [
        each.name
        for each in backups
        if each.origin == made.origin and each.name != made.name and _holds(each) == _holds(made)
    ]
    old = others[: max(0, len(others) - (keep - 1))]
    for name in old:
        folder = manifests.folder_of(name)
        files = await asyncio.to_thread(store.names, f"{folder}/")
        for file in sorted(files, key=lambda each: not _is_manifest(each)):
            await asyncio.to_thread(store.delete, file)
    return old


async def delete_incomplete(store: ObjectStore, now: Micros) -> Sequence[str]:
    """Delete what killed runs left: files without a manifest, of backups begun over a day ago; returns their names.

    A younger one may still be in the making, by this database or by another one.
    """
    deleted: set[str] = set()

    def is_leftover(file: str) -> bool:
        found = _FILE.fullmatch(file)
        if found is None or f"{file.rpartition('/')[0]}/{manifests.NAME}" in complete or _age(found[1], now) <= DAY:
            return False
        deleted.add(file.split("/")[1])
        return True

    files = await asyncio.to_thread(store.names, "backups")
    complete = {file for file in files if _is_manifest(file)}
    for file in filter(is_leftover, files):
        await asyncio.to_thread(store.delete, file)
    await asyncio.to_thread(store.tidy, "backups", is_leftover)
    return sorted(deleted)


async def verify(store: ObjectStore, manifest: Manifest, progress: Callable[[int, int], None]) -> None:
    """Read every file of a backup; raises `ArchiveError` if one is missing or damaged."""
    done = 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        progress(done, manifest.size)

    folder = manifests.folder_of(manifest.name)
    for file in manifest.files:
        await asyncio.to_thread(verify_file, store, f"{folder}/{file.name}", file, read)


def _holds(manifest: Manifest) -> tuple[bool, bool]:
    """Whether a backup has the events, and whether it has the counters."""
    return any(file.holds == manifests.EVENTS for file in manifest.files), manifest.counters is not None


def _age(begun: str, now: Micros) -> Micros:
    """The time since ``2026-01-31T120000Z``; nothing for a time that does not exist."""
    try:
        at = datetime.strptime(begun, "%Y-%m-%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return now - int(at.timestamp()) * SECOND


def _is_manifest(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == _PARTS and parts[-1] == manifests.NAME


def _read(store: ObjectStore, name: str) -> Manifest:
    file = f"{manifests.folder_of(name)}/{manifests.NAME}"
    if file not in store.names(manifests.folder_of(name)):
        msg = f"there is no backup {name} in {store.url}; 'headgate backup list' lists the backups"
        raise ArchiveError(msg)
    if store.size(file) > manifests.MAX_SIZE:
        msg = f"the backup {name} cannot be used: its manifest is too large"
        raise ArchiveError(msg)
    return manifests.parse(name, store.read(file))
