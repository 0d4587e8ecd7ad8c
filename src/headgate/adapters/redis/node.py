"""One server: its connection, its circuit breaker, and the deadline on its silence.

No call waits for a server that is silent for the deadline: it is answered, or fails with a
transient `StoreError`. A server that fails too often has its circuit opened; probes in the
background find out when it has recovered. A lost connection is made again with growing,
jittered waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.redis.connection import Connector
from headgate.adapters.redis.replica_wait import ReplicaWait
from headgate.adapters.redis.replies import NOPERM, NOSCRIPT, code_of, error_of, is_outage
from headgate.adapters.redis.timeouts import Call, TimeoutWatch
from headgate.core.breaker import Breaker, State
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.connection import Connection
    from headgate.adapters.redis.scripts import Script

    Commands = Sequence[Sequence[bytes | str | int]]

log = logging.getLogger("headgate")
_random: Final = random.SystemRandom()
"""Without a state that a fork copies, and apart from that of the program we are in."""

_MAX_LOGGED: Final = 20
_FIRST_WAIT: Final = 0.02
_BETWEEN_TRIALS: Final = 0.05
_PROBE: Final = ("SET", "rl:probe", "1", "PX", "1000")
"""A write, because a server that is read-only, full or loading answers PING all the same."""


class Timeouts(NamedTuple):
    """How long to wait for a server."""

    deadline: float = 0.05
    """Seconds of silence after which the calls that wait for a server have failed."""
    probe_every: float = 1.0
    """Seconds between two looks at a server whose circuit is open."""


class Node:
    """One server, asked without waiting: every answer goes to a function."""

    def __init__(self, name: str, find: Callable[[], Awaitable[ServerAddress]], timeouts: Timeouts) -> None:
        """`find` says where the server is; nothing is connected before the first call."""
        self.name = name
        self.find = find
        self._timeouts = timeouts
        self._connector = Connector(find, self._recover)
        self._watch = TimeoutWatch(
            timeouts.deadline, lambda: self._connector.last_reply_at, self._connector.has_unread, self._on_silence
        )
        self._probing = TimeoutWatch(
            timeouts.deadline, lambda: self._connector.last_reply_at, self._connector.has_unread, self._on_silent_probe
        )
        self._breaker = Breaker(self._on_change)
        self._held: list[tuple[Commands, Call]] = []
        """What was asked while the first connection was being made."""
        self._teaching: set[bytes] = set()
        """The scripts that are on their way to the server in full."""
        self._recovering: asyncio.Task[None] | None = None
        self._was_tried = self._closed = self._is_logged_as_open = False
        self._twin: Node | None = None
        self._replica_wait: ReplicaWait | None = None
        self._forbidden: set[str] = set()
        """What the log has said of permissions."""
        self.why = ""
        """Why the last call failed."""

    @property
    def deadline(self) -> float:
        """Seconds of silence after which the calls that wait have failed."""
        return self._timeouts.deadline

    @property
    def replica_wait(self) -> ReplicaWait:
        """The way to this server for what its replicas must have too: on a connection of its own."""
        if self._replica_wait is None:
            self._twin = Node(self.name, self.find, self._timeouts)
            self._replica_wait = ReplicaWait(self._twin)
        return self._replica_wait

    @property
    def state(self) -> State:
        """The state of the breaker."""
        return self._breaker.state

    @property
    def in_flight(self) -> int:
        """How many commands have no answer yet, those that wait for a connection included."""
        connection = self._connector.connection
        of_twin = 0 if self._twin is None else self._twin.in_flight
        return of_twin + len(self._held) + (0 if connection is None else connection.in_flight)

    # Asking

    def send(self, *commands: Sequence[bytes | str | int], answered: Callable[[object], None]) -> None:
        """Send commands; `answered` gets the answer to the last of them, or a `StoreError`."""
        if not self._breaker.admits():
            self._recover()  # which is under way, unless it broke down
            answered(StoreError(f"circuit open: redis {self.name}, {self.why}", transient=True))
            return
        call = Call(answered)
        connection = self._connector.connection
        if connection is None:
            self._hold(commands, call)
        else:
            self._write(connection, commands, call)
            self._watch.watch(call)

    def _write(self, connection: Connection, commands: Commands, call: Call) -> None:
        for command in commands[:-1]:
            connection.send(command, _ignore)
        connection.send(commands[-1], lambda answer: self._on_answer(call, answer))

    def call(
        self,
        script: Script,
        keys: int,
        arguments: Sequence[bytes | str],
        answered: Callable[[object], None],
        before: Commands = (),
    ) -> None:
        """Call a script by its name; if the server does not know it, nothing was done, so send it in full.

        `before` are commands to send before it, each time. While a script is on its way in full, what
        comes after it goes by its name again: a thousand copies would be more than a server can read.
        """
        by_name = (*before, ("EVALSHA", script.sha, keys, *arguments))

        def in_full(answer: object) -> None:
            if code_of(answer) != NOSCRIPT:
                answered(answer)
                return
            self._teaching.add(script.sha)
            self.send(*before, ("EVAL", script.text, keys, *arguments), answered=taught)

        def taught(answer: object) -> None:
            self._teaching.discard(script.sha)
            answered(answer)

        def first_answer(answer: object) -> None:
            if code_of(answer) == NOSCRIPT and script.sha in self._teaching:
                self.send(*by_name, answered=in_full)
            else:
                in_full(answer)

        self.send(*by_name, answered=first_answer)

    def _hold(self, commands: Commands, call: Call) -> None:
        """Without a connection: wait for the first attempt at one, but for no other."""
        self._recover()
        if self._was_tried:
            self._breaker.failed(self._now())
            call.settle(StoreError(f"not connected to {self.name}: {self.why}", transient=True))
        else:
            self._held.append((commands, call))
            self._watch.watch(call)

    def _on_answer(self, call: Call, answer: object) -> None:
        if call.is_settled:  # it came too late, which was counted then
            return
        if is_outage(answer):
            self._fail(call, answer)
        else:
            if isinstance(answer, Exception) and code_of(answer) == NOPERM:
                self._log_forbidden(str(answer))
            self._breaker.succeeded(self._now())
            call.settle(answer)

    def _log_forbidden(self, text: str) -> None:
        """Say once what the server's user may not do: the server is well, and other rules may not need it."""
        if text not in self._forbidden and len(self._forbidden) < _MAX_LOGGED:
            self._forbidden.add(text)
            log.warning(
                "permission denied: redis %s, %s; rules that need it are decided by on_store_error", self.name, text
            )

    def _on_silence(self, call: Call) -> None:
        connection = self._connector.connection
        figures = "not connected yet"
        if connection is not None:
            figures = f"{connection.in_flight} commands in flight, {connection.unsent} bytes unsent, none unread"
        msg = f"timeout: no reply for {self._timeouts.deadline * 1000:g} ms, {figures}"
        self._fail(call, StoreError(msg, transient=True))

    def _fail(self, call: Call, answer: object) -> None:
        if self._breaker.state is not State.OPEN:  # else it is a consequence, not the reason
            self.why = str(answer)
        self._breaker.failed(self._now())
        call.settle(answer)

    @staticmethod
    def _now() -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000)

    # Losing the server and finding it again

    def _on_change(self, state: State) -> None:
        if state is State.OPEN:
            if not self._is_logged_as_open:
                log.warning("circuit open: redis %s, %s", self.name, self.why)
            self._is_logged_as_open = True
            self._connector.drop()  # it may be dead without having said so
            self._recover()
        elif state is State.CLOSED:
            log.warning("circuit closed: redis %s recovered", self.name)
            self._is_logged_as_open = False

    def _recover(self) -> None:
        if not self._closed and (self._recovering is None or self._recovering.done()):
            self._recovering = asyncio.get_running_loop().create_task(self._until_well())

    async def _until_well(self) -> None:
        """Connect and probe until there is a connection and the breaker is closed."""
        wait = _FIRST_WAIT
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 (whatever it is, somebody must go on looking)
                self.why = str(error) or repr(error)
                self._was_tried = True
                self._breaker.failed(self._now())
                # A handshake that is refused for good is no fault of what was asked: to callers it is an outage.
                self._release(StoreError(self.why, transient=True))
                wait = min(2 * wait, self._timeouts.probe_every)
            else:
                if self._breaker.state is State.CLOSED:
                    return
                wait = _BETWEEN_TRIALS
            pause = wait * _random.uniform(0.8, 1.2)  # so that a fleet does not come at once
            # From look to look: to connect in vain may have taken a second already.
            await asyncio.sleep(max(_FIRST_WAIT, pause - (clock() - began)))

    async def _look(self) -> None:
        """Connect if need be, and, if the circuit is not closed, see whether the server can write."""
        await self._connector.connect()
        self._was_tried = True
        self._release(None)
        if self._breaker.state is State.CLOSED:
            return
        answer = await self._probed()
        # A node of a cluster that has other keys, or a user that may not write this one: the server is well.
        if is_outage(answer):
            raise error_of(answer)
        self._breaker.answered_probe(self._now())

    async def _probed(self) -> object:
        """The answer to a probe, or the error that there is none."""
        connection = self._connector.connection
        if connection is None:  # lost again
            return StoreError("the connection was lost", transient=True)
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        call = Call(lambda answer: None if answered.done() else answered.set_result(answer))
        connection.send(_PROBE, call.settle)
        self._probing.watch(call)
        return await answered

    def _on_silent_probe(self, call: Call) -> None:
        call.settle(StoreError(f"timeout: no reply for {self._timeouts.deadline * 1000:g} ms", transient=True))
        self._connector.drop()

    def _release(self, error: StoreError | None) -> None:
        """Send what waited for the first connection, or let it fail."""
        held, self._held = self._held, []
        connection = self._connector.connection
        for commands, call in held:
            if call.is_settled:
                continue
            if error is not None or connection is None:
                self._fail(call, error or StoreError("the connection was lost", transient=True))
                continue
            self._write(connection, commands, call)

    async def connect(self) -> None:
        """Connect now; raises `StoreError` if the server cannot be reached."""
        await self._connector.connect()
        self._was_tried = True

    async def close(self) -> None:
        """Drop the connection and make no other."""
        self._closed = True
        try:
            if self._recovering is not None:
                self._recovering.cancel()
                await asyncio.wait([self._recovering])
        finally:  # also if whoever closes is cancelled meanwhile
            self._release(StoreError("the connection was closed", transient=True))
            self._connector.drop()
            self._watch.close()
            self._probing.close()
        if self._twin is not None:
            await self._twin.close()


def _ignore(_answer: object) -> None:
    """The answer to a command that only prepares the next one."""
