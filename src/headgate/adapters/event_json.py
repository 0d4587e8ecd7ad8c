"""Events as JSON for other systems, and the sink that appends them to a file, one line each.

Field names are those of the admin API. The schema is in event.schema.json beside this file and in docs/reference.

Each line has the id of its batch. So a batch that a crash cut short is completed when it is stored again, and a
complete batch is not written twice.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter, OrderedDict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from headgate.errors import SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.core.event import Event, EventBatch

SCHEMA: Final = "headgate.event"
VERSION: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.json.Encoder().encode


def event_json(event: Event, batch: EventBatch) -> bytes:
    """One event of a batch; ValueError, TypeError, OverflowError or RecursionError if JSON cannot say it."""
    return _encode(
        {
            "schema": SCHEMA,
            "version": VERSION,
            "at": _EPOCH + timedelta(microseconds=event.at),
            "sequence": event.sequence,
            "id": event.id,
            "user": event.user,
            "tenant": event.tenant,
            "api_key": event.api_key,
            "ip": event.ip,
            "tier": event.tier,
            "method": event.method,
            "endpoint": event.endpoint,
            "rule": event.rule,
            "decision": event.decision,
            "source": event.source,
            "count": event.used,
            "limit": event.limit,
            "cost": event.cost,
            "status": event.status,
            "retry_after": event.retry_after,
            "region": batch.region or None,
            "server": batch.server,
            "latency": event.latency,
            "stands_for": 1 if event.extra is None else event.extra.get("stands_for", 1),
            "extra": event.extra,
        }
    )


_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND
_REMEMBERED: Final = 4 * 1024 * 1024
"""So many bytes at the end of a file are looked through for batches that are in it, more if the last is longer."""
_MAX_BATCHES: Final = 1_000


class JsonLines:
    """See `headgate.ports.EventSink`. A file that was moved away, by logrotate for example, is begun anew."""

    name = "file"

    def __init__(self, path: Path) -> None:
        """The file is made when the first batch comes. No other process may write to it."""
        self._path = path
        self._lock = threading.Lock()
        self._file: int | None = None
        self._written: OrderedDict[str, int] = OrderedDict()
        """How many lines of which batches are in the file, the last of them."""

    async def store(self, batch: EventBatch) -> SinkResult:
        """Append a batch, or what is missing of it."""
        try:
            refused = await asyncio.to_thread(self._append, batch)
        except OSError as error:
            msg = f"{self._path} cannot be written: {error.strerror or error}"
            raise SinkError(msg) from error
        return SinkResult(len(batch.events) - refused, refused)

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._close)

    def _append(self, batch: EventBatch) -> int:
        with self._lock:  # a cancelled call continues here in its thread, and `close` may come meanwhile
            return self._write(batch)

    def _write(self, batch: EventBatch) -> int:
        lines = [line for event in batch.events if (line := _line(event, batch)) is not None]
        file = self._open()
        missing = lines[self._written.get(batch.id, 0) :]
        if missing:
            _write(file, b"".join(missing))
        self._written[batch.id] = len(lines)
        if len(self._written) > _MAX_BATCHES:
            self._written.popitem(last=False)
        return len(batch.events) - len(lines)

    def _open(self) -> int:
        """The file at the path, which may be another one than last time."""
        if self._file is not None and not self._was_moved(self._file):
            return self._file
        self._forget()
        self._file = file = os.open(self._path, _FLAGS, 0o640)
        self._written |= _found(file)
        return file

    def _was_moved(self, file: int) -> bool:
        try:
            return not os.path.samestat(os.stat(file), self._path.stat())
        except FileNotFoundError:
            return True

    def _close(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _found(file: int) -> dict[str, int]:
    """The batches at the end of a file, with their lines, in order. A line that a crash has torn is cut off.

    As much is read as is needed to have the last batch whole: it is the one that may come again.
    """
    size, reach = os.fstat(file).st_size, _REMEMBERED
    while True:
        start = max(0, size - reach)
        data = os.pread(file, size - start, start)
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        if start:
            lines = lines[1:]  # the first may have begun before
        ids = [_batch_of(line) for line in lines]
        if not start or (ids and (ids[0] is None or ids[0] != ids[-1])):
            break
        reach *= 2
    if whole < len(data):
        os.ftruncate(file, start + whole)
    return Counter(id_ for id_ in ids if id_ is not None)


def _batch_of(line: bytes) -> str | None:
    try:
        data = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    id_ = data.get("batch") if isinstance(data, dict) else None
    return id_ if isinstance(id_, str) else None


def _write(file: int, data: bytes) -> None:
    """All of it, or nothing, as far as the disk allows."""
    size = os.fstat(file).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _line(event: Event, batch: EventBatch) -> bytes | None:
    """An event as it leaves for other systems, and the id of its batch; None if JSON cannot say it."""
    try:
        return b'%b,"batch":"%b"}\n' % (event_json(event, batch)[:-1], batch.id.encode("ascii"))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
