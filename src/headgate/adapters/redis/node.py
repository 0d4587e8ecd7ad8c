"""One server: its connection, its circuit breaker, and its timeout.

A call to a server that is silent for the deadline fails with a transient `StoreError`. After too many failures the
circuit opens and calls fail at once; probes in the background close it when the server has recovered. A lost
connection is opened again after growing, jittered waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis.call import RedisCall
from headgate.adapters.redis.connection import Connector
from headgate.adapters.redis.replica_wait import ReplicaWait
from headgate.adapters.redis.replies import NOPERM, code_of, error_of, is_outage
from headgate.adapters.redis.timeouts import TimeoutWatch
from headgate.core.breaker import Breaker, State
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.connection import Connection
    from headgate.adapters.redis.timeouts import Timeouts

log = logging.getLogger("headgate")
_random: Final = random.SystemRandom()
"""Without a state that a fork copies, and separate from that of the program we are in."""

_MAX_LOGGED: Final = 20
_FIRST_WAIT: Final = 0.02
_BETWEEN_TRIALS: Final = 0.05
_ASKING: Final = ("ASKING",)
_CLOSED: Final = State.CLOSED  # for every call: to look up a member of an enum takes a call
_PROBE: Final = ("SET", "rl:probe", "1", "PX", "1000")
"""A write, because a server that is read-only, full or loading answers PING all the same."""


class Node:
    """One server, called without waiting: each `RedisCall` gets its reply from here."""

    def __init__(self, name: str, find: Callable[[], Awaitable[ServerAddress]], timeouts: Timeouts) -> None:
        """`find` gives the server's address; nothing is connected before the first call."""
        self.name = name
        self.find = find
        self._timeouts = timeouts
        self._connector = connector = Connector(find, self._recover)
        self._watch = TimeoutWatch(
            timeouts.deadline, lambda: connector.last_reply_at, connector.has_unread, self._on_timeout
        )
        self._probe_watch = TimeoutWatch(
            timeouts.deadline, lambda: connector.last_reply_at, connector.has_unread, self._on_probe_timeout
        )
        self._breaker = Breaker(self._on_change)
        self._held: list[RedisCall] = []
        """Calls that wait for the first connection."""
        self.loading: set[bytes] = set()
        """The digests of scripts that are being sent in full."""
        self._recovering: asyncio.Task[None] | None = None
        self._was_tried = self._closed = self._is_logged_as_open = False
        self._twin: Node | None = None
        self._replica_wait: ReplicaWait | None = None
        self._forbidden: set[str] = set()
        """The refusals for want of permission that are logged."""
        self._last_error = ""
        self.on_moved: set[Callable[[], None]] = set()
        """Called when the data has moved to another server: connections outside this node must follow."""

    @property
    def deadline(self) -> float:
        """Seconds without any reply after which the calls in flight time out."""
        return self._timeouts.deadline

    @property
    def replica_wait(self) -> ReplicaWait:
        """For calls that the replicas must have too, on a connection of its own."""
        if self._replica_wait is None:
            self._twin = Node(self.name, self.find, self._timeouts)
            self._replica_wait = ReplicaWait(self._twin)
        return self._replica_wait

    @property
    def state(self) -> State:
        """The state of the circuit."""
        return self._breaker.state

    @property
    def in_flight(self) -> int:
        """How many commands have no reply yet, including those that wait for a connection."""
        connection = self._connector.connection
        of_twin = 0 if self._twin is None else self._twin.in_flight
        return of_twin + len(self._held) + (0 if connection is None else connection.in_flight)

    # Calls

    def send(self, call: RedisCall) -> None:
        """Send a call, if the circuit lets it through."""
        if self._breaker.state is not _CLOSED and not self._breaker.admits():
            self._recover()  # which is running, unless it failed
            call.conclude(StoreError(f"circuit open: redis {self.name}, {self._last_error}", transient=True))
            return
        connection = self._connector.connection
        if connection is None:
            self._hold(call)
        else:
            self._write(connection, call)
            self._watch.watch(call)

    def _write(self, connection: Connection, call: RedisCall) -> None:
        if call.is_asking:
            connection.send(_ASKING, _ignore)
        connection.send(call.command, call.on_reply)

    def _hold(self, call: RedisCall) -> None:
        """Without a connection: wait for the first attempt to connect, but for no other."""
        self._recover()
        if self._was_tried:
            self._breaker.failed(self._now())
            call.conclude(StoreError(f"not connected to {self.name}: {self._last_error}", transient=True))
        else:
            self._held.append(call)
            self._watch.watch(call)

    def record(self, reply: object) -> None:
        """Count a reply, or the error in its place, for the circuit breaker."""
        if isinstance(reply, Exception):
            if is_outage(reply):
                self._record_failure(reply)
                return
            if code_of(reply) == NOPERM:
                self._log_forbidden(str(reply))
        self._breaker.succeeded(self._now())

    def _record_failure(self, error: Exception) -> None:
        if self._breaker.state is not State.OPEN:  # else it is a consequence, not the cause
            self._last_error = str(error)
        self._breaker.failed(self._now())

    def _log_forbidden(self, text: str) -> None:
        """Log once what the server's user may not do: the server is well, and other rules may not need it."""
        if text not in self._forbidden and len(self._forbidden) < _MAX_LOGGED:
            self._forbidden.add(text)
            log.warning(
                "permission denied: redis %s, %s; rules that need it are decided by on_store_error", self.name, text
            )

    def _on_timeout(self, call: RedisCall) -> None:
        connection = self._connector.connection
        figures = "not connected yet"
        if connection is not None:
            figures = f"{connection.in_flight} commands in flight, {connection.unsent} bytes unsent, 0 bytes unread"
        msg = f"timeout: no reply for {self._timeouts.deadline * 1000:g} ms, {figures}"
        call.on_reply(StoreError(msg, transient=True))

    @staticmethod
    def _now() -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000)

    # Recovery

    def _on_change(self, state: State) -> None:
        if state is State.OPEN:
            if not self._is_logged_as_open:
                log.warning("circuit open: redis %s, %s", self.name, self._last_error)
            self._is_logged_as_open = True
            self._connector.drop()  # the server may be dead without having closed it
            self._recover()
        elif state is State.CLOSED:
            log.warning("circuit closed: redis %s recovered", self.name)
            self._is_logged_as_open = False

    def _recover(self) -> None:
        if not self._closed and (self._recovering is None or self._recovering.done()):
            self._recovering = asyncio.get_running_loop().create_task(self._until_recovered())

    async def _until_recovered(self) -> None:
        """Connect and probe until there is a connection and the circuit is closed."""
        wait = _FIRST_WAIT
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                await self._try_once()
            except Exception as error:  # noqa: BLE001 (recovery goes on, whatever it is)
                self._last_error = str(error) or repr(error)
                self._was_tried = True
                self._breaker.failed(self._now())
                # A handshake that is refused permanently is an outage to callers: their calls are not at fault.
                self._release(StoreError(self._last_error, transient=True))
                wait = min(2 * wait, self._timeouts.probe_every)
            else:
                if self._breaker.state is State.CLOSED:
                    return
                wait = _BETWEEN_TRIALS
            pause = wait * _random.uniform(0.8, 1.2)  # so that a fleet does not reconnect at the same moment
            # From start to start: connecting in vain may have taken a second already.
            await asyncio.sleep(max(_FIRST_WAIT, pause - (clock() - began)))

    async def _try_once(self) -> None:
        """Connect if needed, and, unless the circuit is closed, probe whether the server can write."""
        await self._connector.connect()
        self._was_tried = True
        self._release(None)
        if self._breaker.state is State.CLOSED:
            return
        reply = await self._probe()
        # A cluster node that holds other keys, or a user that may not write this one: the server is well.
        if is_outage(reply):
            raise error_of(reply)
        self._breaker.answered_probe(self._now())

    async def _probe(self) -> object:
        """The reply to a probe, or the error that there is none."""
        connection = self._connector.connection
        if connection is None:  # lost again
            return StoreError("the connection to redis was lost", transient=True)
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        call = RedisCall(None, 0, _PROBE, lambda reply: None if done.done() else done.set_result(reply))
        connection.send(_PROBE, call.conclude)
        self._probe_watch.watch(call)
        return await done

    def _on_probe_timeout(self, call: RedisCall) -> None:
        call.conclude(StoreError(f"timeout: no reply for {self._timeouts.deadline * 1000:g} ms", transient=True))
        self._connector.drop()

    def _release(self, error: StoreError | None) -> None:
        """Send the calls that waited for the first connection, or fail them."""
        held, self._held = self._held, []
        connection = self._connector.connection
        for call in held:
            if call.is_concluded:
                continue
            if error is not None or connection is None:
                call.on_reply(error or StoreError("the connection to redis was lost", transient=True))
                continue
            self._write(connection, call)

    async def connect(self) -> None:
        """Connect now; raises `StoreError` if the server cannot be reached."""
        await self._connector.connect()
        self._was_tried = True

    async def move(self, find: Callable[[], Awaitable[ServerAddress]]) -> None:
        """Go to another server, if there is a connection; raises `StoreError`. Without one, the next one finds it."""
        if self._connector.connection is not None:
            await self._connector.move(find)
        if self._twin is not None:
            await self._twin.move(find)
        self.moved()

    def moved(self) -> None:
        """Note that the data of this server is on another one from now on."""
        for callback in tuple(self.on_moved):
            callback()

    async def close(self) -> None:
        """Close the connection and open no other."""
        self._closed = True
        try:
            if self._recovering is not None:
                self._recovering.cancel()
                await asyncio.wait([self._recovering])
        finally:  # also if the caller is cancelled meanwhile
            self._release(StoreError("the connection to redis was closed", transient=True))
            self._connector.close()
            self._watch.close()
            self._probe_watch.close()
        if self._twin is not None:
            await self._twin.close()


def _ignore(_reply: object) -> None:
    """The reply to ``ASKING``, which only prepares the next command."""
