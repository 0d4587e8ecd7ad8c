r"""Between what waits and what blocks: data that comes piece by piece into a file of a store, and out of one.

Files are compressed with gzip, which everybody has: ``zcat tiers.copy.gz`` shows a table,
and PostgreSQL's own ``\copy`` takes it, should there be no headgate to restore it.
"""

from __future__ import annotations

import asyncio
import zlib
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator

    from headgate.adapters.object_store import ObjectStore, Written
    from headgate.backup.manifest import File

    Sink = Callable[[bytes], Coroutine[Any, Any, None]]

_LEVEL: Final = 3  # twice as fast as 6, and a tenth larger
_GZIP: Final = 31
_AT_ONCE: Final = 4
_PIECE: Final = 2**20


class _Broken(NamedTuple):
    """Said to the thread that writes, in place of a piece, when no other will come."""


class Kept(NamedTuple):
    """What was kept."""

    file: Written
    text: int
    things: int


async def keep(store: ObjectStore, name: str, produce: Callable[[Sink], Awaitable[int]]) -> Kept:
    """Keep what `produce` hands to its sink, compressed; it returns how many things that were.

    Four pieces are in memory at most: the source waits for the place.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | _Broken | None] = asyncio.Queue(_AT_ONCE)
    text = 0

    def content() -> Iterator[bytes]:
        nonlocal text
        packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        while (piece := asyncio.run_coroutine_threadsafe(pieces.get(), loop).result()) is not None:
            if isinstance(piece, _Broken):
                raise ArchiveError(f"{name} was not finished")  # noqa: EM102, TRY003 (whoever broke it has said why)
            text += len(piece)
            if packed := packing.compress(piece):
                yield packed
        yield packing.flush()

    writing = asyncio.create_task(asyncio.to_thread(store.write, name, content()))

    async def sink(piece: bytes | None) -> None:
        putting = asyncio.create_task(pieces.put(piece))
        await asyncio.wait({putting, writing}, return_when=asyncio.FIRST_COMPLETED)
        if not putting.done():  # the place has failed
            putting.cancel()
            writing.result()

    try:
        count = await produce(sink)
        await sink(None)
        return Kept(await writing, text, count)
    except BaseException:
        while not pieces.empty():
            pieces.get_nowait()
        pieces.put_nowait(_Broken())
        await asyncio.wait({writing})  # a thread cannot be called off
        writing.exception()
        raise


async def taken(store: ObjectStore, name: str, file: File, progress: Callable[[int], None]) -> AsyncIterator[bytes]:
    """The content of a file, decompressed; `ArchiveError` in the end if it was not the file of the manifest."""
    opened = await asyncio.to_thread(store.open_input, name)
    hashed, unpacking, text = sha256(), zlib.decompressobj(_GZIP), 0
    try:
        while packed := await asyncio.to_thread(opened.read, _PIECE):
            hashed.update(packed)
            while packed:
                piece = await asyncio.to_thread(unpacking.decompress, packed, _PIECE)
                packed = unpacking.unconsumed_tail
                text += len(piece)
                if text > file.text:
                    raise ArchiveError(_differs(name))
                if piece:
                    progress(len(piece))
                    yield piece
    except (OSError, zlib.error) as error:
        msg = f"{name} cannot be read: {error}"
        raise ArchiveError(msg) from error
    finally:
        await asyncio.to_thread(opened.close)
    if not unpacking.eof or text != file.text or hashed.hexdigest() != file.sha256:
        raise ArchiveError(_differs(name))


def check(store: ObjectStore, name: str, file: File, progress: Callable[[int], None]) -> None:
    """Read a file through and raise `ArchiveError` unless it is the file of the manifest. Blocks."""
    size = store.size(name)
    if size != file.size:
        msg = f"{name} is damaged: it has {size} bytes, and had {file.size}"
        raise ArchiveError(msg)
    hashed = sha256()
    opened = store.open_input(name)
    try:
        while piece := opened.read(_PIECE):
            hashed.update(piece)
            progress(len(piece))
    except OSError as error:
        msg = f"{name} cannot be read: {error}"
        raise ArchiveError(msg) from error
    finally:
        opened.close()
    if hashed.hexdigest() != file.sha256:
        raise ArchiveError(_differs(name))


def _differs(name: str) -> str:
    return f"{name} is damaged: it is not what was written"
