"""The direct way for threads: one of them sends what all of them ask, and hands out the answers.

Whoever finds the connection free takes its turn: everything that waits goes out as one
script call, and the answer is handed to all who asked. The others sleep until they have
their answer, or the next turn is theirs. No event loop and no second thread stand
between a thread and the server, which for one thread is most of the way.

It is for the usual case: one server that answers. Whatever else there is (an outage, a
lost connection, refunds, rules that ask for more than counting) goes the long way, through
the store in the background, which knows about all that. The direct way opens when the long
way has been answered by the server, and closes at the first sign of trouble.
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

import hiredis

from headgate.adapters.clock import sleep
from headgate.adapters.redis import scripts as batching
from headgate.adapters.redis.connection import keep_alive
from headgate.adapters.redis.replies import NOSCRIPT, code_of, error_of, is_outage
from headgate.core import degraded
from headgate.core.decision import Source
from headgate.core.failure_policy import OnStoreError
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.scripts import Batch
    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.units import Micros
    from headgate.ports import CounterStore


_SLICES: Final = 2
"""In which the deadline is waited for."""
_PIECE: Final = 65_536


class DirectStore:
    """A `CounterStore` whose coroutines block their thread; `take` goes directly to the server where it can."""

    def __init__(
        self, address: ServerAddress, deadline: float, clock: Callable[[], Micros], slow_path: CounterStore
    ) -> None:
        """`slow_path` is a store that blocks its caller too; `clock` is this process's."""
        self._address = address
        self._deadline = deadline
        self._clock = clock
        self._slow_path = slow_path
        self._line: _SharedConnection | None = None
        self._opening = threading.Lock()
        self._is_closed = False
        _stores.add(self)

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        line = self._line
        if line is None or not _is_usual(hits):
            decisions = await self._slow_path.take(hits)
            if line is None and all(decision.source is Source.STORE for decision in decisions):
                self._open()
            return decisions
        try:
            return line.take(hits)
        except StoreError as error:
            if self._is_closed:
                msg = "the limiter was closed while this call waited for an answer"
                raise StoreError(msg, transient=False) from error
            if not error.transient:
                raise
            # It may have been carried out, so it is not asked again; rules that want more went the long way.
            return [degraded.without_counting(hit, self._clock()) for hit in hits]
        finally:
            if line.is_broken and self._line is line:
                self._line = None

    def _open(self) -> None:
        if not self._is_closed and self._opening.acquire(blocking=False):
            try:
                if self._line is None:
                    self._line = _SharedConnection(self._address, self._deadline)
            except (OSError, StoreError):
                pass  # the long way is still there
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
        line, self._line = self._line, None
        if line is not None:
            line.drop()
        await self._slow_path.close()

    def reset_after_fork(self) -> None:
        """In a forked child: the connection is its parent's."""
        self._line = None
        self._opening = threading.Lock()


def _is_usual(hits: Sequence[Hit]) -> bool:
    """Whether nothing is asked but to count; several hits of one request go the long way, which looks at them first."""
    if len(hits) != 1:
        return False
    failure_policy = hits[0].failure_policy
    return failure_policy is None or (failure_policy.on_error is not OnStoreError.LOCAL and not failure_policy.replicas)


class _Waiter:
    """One thread that wants an answer; what `batch` takes for a future."""

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
            pass  # it was awake

    def sleep(self) -> None:
        """Until there is an answer, or it is this thread's turn."""
        self._lock.acquire()

    def result(self) -> Sequence[Decision]:
        if self._error is not None:
            raise self._error
        return self._result


class _SharedConnection:
    """A connection that threads use in turns."""

    def __init__(self, address: ServerAddress, deadline: float) -> None:
        """Connect and greet; raises `OSError` or `StoreError`."""
        self.is_broken = False
        self._deadline = deadline
        self._asked: deque[tuple[Sequence[Hit], _Waiter]] = deque()
        self._turn = threading.Lock()
        self._together = 1
        """How many asked together last time."""
        self._reader = hiredis.Reader()
        self._socket = _connected(address, deadline)
        weakref.finalize(self, self._socket.close)  # also at exit, if the limiter was never closed
        for command in address.handshake():
            answer = self._exchange(command)
            if isinstance(answer, Exception):
                self.drop()
                raise error_of(answer)

    def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """Take hits, together with all that other threads ask for."""
        waiter = _Waiter()
        self._asked.append((hits, waiter))
        while not waiter.done():
            if self._turn.acquire(blocking=False):
                try:
                    self._serve()
                finally:
                    self._turn.release()
                    self._wake_next()
            else:
                waiter.sleep()
        return waiter.result()

    def _wake_next(self) -> None:
        """Whoever asked while we had the turn may sleep now; the first of them has the next one."""
        try:
            first = self._asked[0]
        except IndexError:
            return
        first[1].wake()

    def _serve(self) -> None:
        """Send what waits, as one call, and hand out the answers."""
        batch: Batch = []
        if self._together > 1:
            sleep(0)  # those who were answered together with us get to ask their next question, and come along
        while self._asked and len(batch) < batching.MAX_HITS:
            batch.append(self._asked.popleft())  # type: ignore[arg-type] # a waiter does what is needed of a future
        if not batch:
            return
        self._together = len(batch)
        try:
            script, keys, arguments = batching.script_call(batch, 0, 0, only_peek=False)
            answer = self._exchange(("EVALSHA", script.sha, keys, *arguments))
            if code_of(answer) == NOSCRIPT:  # nothing was done
                answer = self._exchange(("EVAL", script.text, keys, *arguments))
        except BaseException:  # a signal: the answer may still come, and would be taken for the next one
            self.drop()
            batching.fail(batch, StoreError("interrupted while waiting for an answer", transient=True))
            raise
        if is_outage(answer):
            self.drop()
        batching.hand_out(batch, answer)

    def _exchange(self, command: Sequence[bytes | str | int]) -> object:
        """The answer to a command, or the error that there is none."""
        if self.is_broken:
            return StoreError("the connection was lost", transient=True)
        try:
            self._socket.sendall(hiredis.pack_command(tuple(command)))  # type: ignore[arg-type] # its stub says one
            answer = self._reader.gets()
            while answer is False:
                data = self._received()
                if not data:
                    return StoreError("the connection was lost: closed by the server", transient=True)
                self._reader.feed(data)
                answer = self._reader.gets()
                while isinstance(answer, hiredis.PushNotification):  # news that nobody asked for
                    answer = self._reader.gets()
        except BlockingIOError:
            return StoreError(f"timeout: no reply for {self._deadline * 1000:g} ms, none unread", transient=True)
        except (OSError, hiredis.ProtocolError) as error:
            return StoreError(f"the connection was lost: {error}", transient=True)
        if self._reader.has_data():  # more than was asked for would be taken for the next answer
            self.drop()
        return answer

    def _received(self) -> bytes:
        """What came; `BlockingIOError` if the server is silent for the deadline.

        A thread that does not get to run, in a process that is stopped or on a machine that is busy, would find its
        time over although the reply is there. So the deadline is waited for in slices, of which one that lasts too
        long is still one, and the socket is looked at before the server is judged.
        """
        for _ in range(_SLICES):
            with suppress(BlockingIOError):
                return self._socket.recv(_PIECE)
        return self._socket.recv(_PIECE, socket.MSG_DONTWAIT)

    def drop(self) -> None:
        """Use the connection no more. Who waits for an answer gets none, and the others when their turn comes."""
        self.is_broken = True
        with suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_RDWR)  # and closed when no thread can be reading from it any more


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
