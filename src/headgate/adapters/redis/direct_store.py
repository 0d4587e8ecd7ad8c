"""The fast path for threads: one of them sends the checks of all, on a blocking socket, and hands out the decisions.

A thread that finds the connection free takes its turn: all waiting checks go out as one script call, and its reply is
handed to their threads. The others sleep until they have their decisions, or the next turn is theirs. No event loop and
no second thread are between a thread and the server.

This fast path is for one server that answers. Its plain twin is the store in the background (`BlockingStore`), which
also handles outages, lost connections, refunds and rules with other failure policies. It opens after the slow path got
a reply from the server, and closes at the first error.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import sleep
from headgate.adapters.redis import scripts
from headgate.adapters.redis.connection import keep_alive
from headgate.adapters.redis.replies import NOSCRIPT, code_of, error_of, is_outage
from headgate.core import degraded
from headgate.core.decision import Source
from headgate.core.failure_policy import OnStoreError
from headgate.errors import StoreError
from headgate.protocols.resp import NO_REPLY, ProtocolError, ReplyReader, encode_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.connection import Command
    from headgate.adapters.redis.scripts import Batch
    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.units import Micros
    from headgate.ports import CounterStore


_SLICES: Final = 2
"""Into which the deadline is divided."""
_PIECE: Final = 65_536


class DirectStore:
    """A `CounterStore` whose coroutines block their thread; `take` goes directly to the server if it can."""

    def __init__(
        self, address: ServerAddress, deadline: float, clock: Callable[[], Micros], slow_path: CounterStore
    ) -> None:
        """`slow_path` is a store that blocks its caller too; `clock` is the clock of this process."""
        self._address = address
        self._deadline = deadline
        self._clock = clock
        self._slow_path = slow_path
        self._connection: _SharedConnection | None = None
        self._opening = threading.Lock()
        self._is_closed = False
        _stores.add(self)

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        connection = self._connection
        if connection is None or not _is_simple(hits):
            decisions = await self._slow_path.take(hits)
            if connection is None and all(decision.source is Source.STORE for decision in decisions):
                self._open()
            return decisions
        try:
            return connection.take(hits)
        except StoreError as error:
            if self._is_closed:
                msg = "the limiter was closed while this call waited for a reply"
                raise StoreError(msg, transient=False) from error
            if not error.transient:
                raise
            # It may have run, so it is not sent again. Rules with another failure policy are on the slow path.
            return [degraded.without_counting(hit, self._clock()) for hit in hits]
        finally:
            if connection.is_broken and self._connection is connection:
                self._connection = None

    def _open(self) -> None:
        if not self._is_closed and self._opening.acquire(blocking=False):
            try:
                if self._connection is None:
                    self._connection = _SharedConnection(self._address.current(), self._deadline)
            except (OSError, StoreError):
                pass  # the slow path is still there
            finally:
                self._opening.release()

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        return await self._slow_path.peek(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        await self._slow_path.give_back(receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        await self._slow_path.reset(keys)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        self._is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()
        await self._slow_path.close()

    def reset_after_fork(self) -> None:
        """In a forked child: the connection belongs to its parent."""
        self._connection = None
        self._opening = threading.Lock()


def _is_simple(hits: Sequence[Hit]) -> bool:
    """Whether one hit is only to be counted; requests with several hits take the slow path, which checks them first."""
    if len(hits) != 1:
        return False
    failure_policy = hits[0].failure_policy
    return failure_policy is None or (failure_policy.on_error is not OnStoreError.LOCAL and not failure_policy.replicas)


class _Waiter:
    """One thread that waits for its decisions; `scripts` treats it as a future."""

    __slots__ = ("_error", "_is_done", "_lock", "_result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_done = False
        self._result: Sequence[Decision] = ()
        self._error: StoreError | None = None

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Sequence[Decision]) -> None:
        self._result = result
        self._is_done = True
        self.wake()

    def set_exception(self, error: StoreError) -> None:
        self._error = error
        self._is_done = True
        self.wake()

    def wake(self) -> None:
        try:  # noqa: SIM105 (suppress takes longer than the rest)
            self._lock.release()
        except RuntimeError:
            pass  # it is awake

    def sleep(self) -> None:
        """Until there are decisions, or the connection is free for this thread."""
        self._lock.acquire()

    def result(self) -> Sequence[Decision]:
        if self._error is not None:
            raise self._error
        return self._result


class _SharedConnection:
    """A connection that threads use in turns."""

    def __init__(self, address: ServerAddress, deadline: float) -> None:
        """Connect and authenticate; raises `OSError` or `StoreError`."""
        self.is_broken = False
        self._deadline = deadline
        self._waiting: deque[tuple[Sequence[Hit], _Waiter]] = deque()
        self._lock = threading.Lock()
        self._last_size = 1
        """How many checks the last call had."""
        self._reader = ReplyReader()
        self._socket = _connected(address, deadline)
        weakref.finalize(self, self._socket.close)  # also at exit, if the limiter was never closed
        for command in address.handshake():
            reply = self._exchange(command)
            if isinstance(reply, Exception):
                self.drop()
                raise error_of(reply)

    def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """Take hits, together with the hits of all other threads that wait."""
        waiter = _Waiter()
        self._waiting.append((hits, waiter))
        while not waiter.done():
            if self._lock.acquire(blocking=False):
                try:
                    self._serve()
                finally:
                    self._lock.release()
                    self._wake_next()
            else:
                waiter.sleep()
        return waiter.result()

    def _wake_next(self) -> None:
        """Threads that came while this one had the connection may be asleep now; the first of them gets it next."""
        try:
            first = self._waiting[0]
        except IndexError:
            return
        first[1].wake()

    def _serve(self) -> None:
        """Send all waiting checks as one call, and hand out the decisions."""
        batch: Batch = []
        if self._last_size > 1:
            sleep(0)  # threads of the last call get to send their next check along
        while self._waiting and len(batch) < scripts.MAX_HITS:
            batch.append(self._waiting.popleft())  # type: ignore[arg-type] # a waiter has what is needed of a future
        if not batch:
            return
        self._last_size = len(batch)
        try:
            script, keys, arguments = scripts.script_call(batch, 0, 0, only_peek=False)
            reply = self._exchange(("EVALSHA", script.sha, keys, *arguments))
            if code_of(reply) == NOSCRIPT:  # the server did not run it
                reply = self._exchange(("EVAL", script.text, keys, *arguments))
        except BaseException:  # a signal: the reply may still arrive, and would be taken for the next one
            self.drop()
            scripts.fail(batch, StoreError("interrupted while waiting for a reply", transient=True))
            raise
        if is_outage(reply):
            self.drop()
        scripts.hand_out(batch, reply)

    def _exchange(self, command: Command) -> object:
        """The reply to a command, or the error that there is none."""
        if self.is_broken:
            return StoreError("the connection to redis was lost", transient=True)
        try:
            self._socket.sendall(encode_command(command))
            reply = self._reader.next()
            while reply is NO_REPLY:
                data = self._received()
                if not data:
                    return StoreError("the connection to redis was lost: closed by the server", transient=True)
                self._reader.feed(data)
                reply = self._reader.next()
        except BlockingIOError:
            return StoreError(f"timeout: no reply for {self._deadline * 1000:g} ms, 0 bytes unread", transient=True)
        except (OSError, ProtocolError) as error:
            return StoreError(f"the connection to redis was lost: {error}", transient=True)
        if self._reader.has_data():  # more than one reply: the rest would be taken for the next one
            self.drop()
        return reply

    def _received(self) -> bytes:
        """What arrived; `BlockingIOError` if the server is silent for the deadline.

        A thread that does not get to run, in a stopped process or on a busy machine, would find its time over although
        the reply is there. So the deadline is divided into slices: a slice that lasts too long still counts once, and
        the socket is read once more before the call times out.
        """
        for _ in range(_SLICES):
            with suppress(BlockingIOError):
                return self._socket.recv(_PIECE)
        return self._socket.recv(_PIECE, socket.MSG_DONTWAIT)

    def drop(self) -> None:
        """Close the connection. The call in flight fails, and the waiting checks when their turn comes."""
        self.is_broken = True
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)  # closed later, when no thread can be reading from it


def _connected(address: ServerAddress, deadline: float) -> socket.socket:
    if address.path is not None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(deadline)
        connection.connect(address.path)
    else:
        connection = socket.create_connection((address.host, address.port), deadline)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
    # The system's own timeouts: Python's would cost a call to the system before each of ours.
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _seconds(deadline / _SLICES))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _seconds(deadline))
    return connection


def _seconds(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


_stores: weakref.WeakSet[DirectStore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in _stores:
        store.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
