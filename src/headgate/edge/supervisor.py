"""The supervisor: the process that was started. It answers nothing; it keeps the processes that do running.

It forks them, so that they start at once with everything imported. It has no event loop and no threads: what is
forked is a plain process. A process that exits is started again, at once for the first time and later and later if
that does not help. SIGTERM and SIGINT are passed on. If the supervisor itself is killed, its processes end.

One process, ``main``, looks after what all share: it is started before the workers and ends after them. If there are
embedded servers, one that only keeps those running is started before it and ends after it.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import selectors
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from headgate.edge.http.server import ShutdownTimes

log = logging.getLogger("headgate")

MAIN: Final = "main"
KEEPER: Final = "keeper"
SUPERVISOR: Final = "supervisor"
_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before the first restart in a row, the second, and so on."""
_SECONDS_TO_PROVE: Final = 60.0
"""A process that has answered for so long begins a new row."""
_SECONDS_TO_CLOSE: Final = 15.0
"""After notice and drain, for what a worker does at its end."""
_READY: Final = b"r"
_ALL_ANSWER: Final = b"a"
_ALL_ENDED: Final = b"e"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_TITLES: Final = {MAIN: "the main process", KEEPER: "the process of the embedded servers"}


class SupervisorPipes(NamedTuple):
    """What a process has of its supervisor."""

    restarts: int
    """How often this process was started again."""
    status_fd: int
    """A descriptor: a byte comes when all processes answer, another when all workers have ended, and the end of the
    file when the supervisor is dead."""
    ready: int

    def answers(self) -> None:
        """Tell the supervisor that this process answers."""
        with suppress(OSError):  # the supervisor is dead, and this process ends soon
            os.write(self.ready, _READY)

    @staticmethod
    def all_answer(said: bytes) -> bool:
        """Whether that is what `status_fd` said."""
        return _ALL_ANSWER in said

    @staticmethod
    def all_ended(said: bytes) -> bool:
        """Whether no worker runs any more; or the supervisor, which is all the same."""
        return _ALL_ENDED in said or not said


class Task(NamedTuple):
    """What one process does."""

    name: str
    """``main``, ``keeper``, or the number of a worker."""
    run: Callable[[SupervisorPipes], int]
    """Runs until SIGTERM; returns the exit code."""

    @property
    def title(self) -> str:
        """For logs."""
        return _TITLES.get(self.name) or f"worker {self.name}"


class _Child:
    """One process of the service, over all of its restarts."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.pid: int | None = None
        self.restarts = 0
        self.in_a_row = 0
        self.started = 0.0
        self.answers = False
        self.has_answered = False
        self.due: float | None = None
        """When it is to be started again."""
        self.ready = self.status_fd = -1
        """Our ends of its two pipes."""

    def close(self) -> None:
        """Close our ends."""
        for descriptor in (self.ready, self.status_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self.ready = self.status_fd = -1

    def tell(self, what: bytes) -> None:
        if self.status_fd >= 0:
            with suppress(OSError):  # it has just ended
                os.write(self.status_fd, what)


class Supervisor:
    """Runs a main process and workers until SIGTERM or SIGINT."""

    def __init__(
        self, main: Task, workers: Sequence[Task], shutdown: ShutdownTimes, servers: Task | None = None
    ) -> None:
        """Workers are started once the main process answers, that one once the embedded `servers` do, if there are."""
        self._main = _Child(main)
        self._servers = None if servers is None else _Child(servers)
        self._workers = [_Child(task) for task in workers]
        self._shutdown = shutdown
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = -1, -1
        self._stopping = False
        self._release: Callable[[], None] = _nothing
        self._deadline: float | None = None
        self._code = 0

    def run(self, release: Callable[[], None], before_main: Callable[[], None]) -> int:
        """Run until all have ended; returns the exit code.

        `release` is called when the end begins, and when the main process dies again within a minute: clients that
        connect must not wait for one that cannot be kept running. `before_main` is called while embedded servers
        start: what it imports, the main process has at each of its starts.
        """
        self._release = release
        self._wake, self._woken = os.pipe()
        for descriptor in (self._wake, self._woken):
            os.set_blocking(descriptor, False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, _wake_up)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        if self._servers is not None:
            self._start(self._servers)
        before_main()
        gc.freeze()  # objects that no collection touches stay shared with the processes
        if self._servers is None:
            self._start(self._main)
        while any(each.pid is not None or each.due is not None for each in self._children):
            ready = self._selector.select(self._timeout())
            woken = [key.fd for key, _ in ready]
            numbers = os.read(self._wake, 4_096) if self._wake in woken else b""
            for child in self._children:
                if child.ready in woken:
                    self._hear(child)
            self._reap()
            for sent in numbers:
                if sent in {signal.SIGTERM, signal.SIGINT}:
                    self._release()
                    self._end(signal.Signals(sent))
            self._start_due()
            self._kill_late()
        return self._code

    @property
    def _children(self) -> list[_Child]:
        return [*([] if self._servers is None else [self._servers]), self._main, *self._workers]

    def _timeout(self) -> float | None:
        times = [child.due for child in self._children if child.due is not None]
        if self._deadline is not None:
            times.append(self._deadline)
        return max(0.0, min(times) - monotonic()) if times else None

    def _start(self, child: _Child) -> None:
        ready, its_ready = os.pipe()
        its_status_fd, status_fd = os.pipe()
        link = SupervisorPipes(child.restarts, its_status_fd, its_ready)
        supervisor = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._forget()
            os.close(ready)
            os.close(status_fd)
            os._exit(_run(child.task, link, supervisor))
        os.close(its_ready)
        os.close(its_status_fd)
        child.pid, child.ready, child.status_fd = pid, ready, status_fd
        child.started, child.answers, child.due = monotonic(), False, None
        self._selector.register(ready, selectors.EVENT_READ)
        if child is self._main and child.has_answered:
            child.tell(_ALL_ANSWER)  # its workers have been started before

    def _forget(self) -> None:
        """In a process that was just forked: have nothing of the supervisor's."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        os.close(self._wake)
        os.close(self._woken)
        for other in self._children:
            other.close()

    def _hear(self, child: _Child) -> None:
        """A process answers, or has ended before."""
        self._selector.unregister(child.ready)
        if os.read(child.ready, 1) != _READY:
            return
        child.answers = True
        if child.has_answered:
            log.info("%s (process %s) answers again", child.task.title, child.pid)
        child.has_answered = True
        if child is self._servers and not self._stopping and not self._main.has_answered and self._main.pid is None:
            self._start(self._main)
        if child is self._main and not self._stopping:
            for worker in self._workers:
                if not worker.has_answered and worker.pid is None:
                    self._start(worker)
        if all(each.has_answered for each in self._children):
            self._main.tell(_ALL_ANSWER)

    def _reap(self) -> None:
        """Learn which processes have ended. Others may be ours too: process 1 of a container gets all orphans."""
        with suppress(ChildProcessError):  # there are none
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for child in self._children:
                    if child.pid == pid:
                        self._on_exit(child, os.waitstatus_to_exitcode(status))

    def _on_exit(self, child: _Child, code: int) -> None:
        pid, lived = child.pid, monotonic() - child.started
        child.pid = None
        if child.ready in self._selector.get_map():
            self._selector.unregister(child.ready)
        child.close()
        if self._stopping:
            self._end_in_turn()
            return
        if not child.has_answered:
            self._give_up(child, code)
            return
        if child.answers and lived >= _SECONDS_TO_PROVE:
            child.in_a_row = 0
        pause = _PAUSES[min(child.in_a_row, len(_PAUSES) - 1)]
        child.in_a_row += 1
        if child is self._main and child.in_a_row > 1:
            self._release()
        child.restarts += 1
        child.due = monotonic() + pause
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        log.error(
            "%s (process %s) %s after %.1f s and is restarted in %g s (restart %d)",
            *(child.task.title, pid, how, lived, pause, child.restarts),
        )

    def _give_up(self, child: _Child, code: int) -> None:
        """What cannot even start is not started again: the log has the reason."""
        self._code = code if code > 0 else 1
        if code < 0 or child in self._workers:
            log.error("%s could not start (code %d); the log has the reason", child.task.title, code)
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        """Pass the signal on. A later SIGINT makes it faster."""
        self._stopping = True
        if self._deadline is None and any(each.pid for each in self._workers):
            self._deadline = monotonic() + self._shutdown.notice + self._shutdown.drain + _SECONDS_TO_CLOSE
        for child in self._children:
            child.due = None
            if child.pid is not None and child is not self._servers:
                os.kill(child.pid, number)  # it is not reaped yet, so the number is still its own
        self._end_in_turn()

    def _end_in_turn(self) -> None:
        """The main process ends after the workers, the embedded servers after that."""
        if any(each.pid for each in self._workers):
            return
        self._main.tell(_ALL_ENDED)
        if self._main.pid is None and self._servers is not None and self._servers.pid is not None:
            os.kill(self._servers.pid, signal.SIGTERM)

    def _start_due(self) -> None:
        now = monotonic()
        for child in self._children:
            if child.due is not None and child.due <= now:
                self._start(child)

    def _kill_late(self) -> None:
        if self._deadline is None or monotonic() < self._deadline:
            return
        self._deadline = None
        for child in self._workers:
            if child.pid is not None:
                log.warning("%s did not stop in time and was killed", child.task.title)
                os.kill(child.pid, signal.SIGKILL)


def _nothing() -> None:
    """Until `run` is called there is nothing to release."""


def _wake_up(_number: int, _frame: FrameType | None) -> None:
    """The number is read from the wake-up pipe; the handler only has to exist."""


def _run(task: Task, link: SupervisorPipes, supervisor: int) -> int:
    """Run a task in a process that was just forked; returns its exit code, whatever it does."""
    code = 1
    try:
        os.setpgid(0, 0)  # ctrl-c is for the supervisor, which passes it on
        _end_with(supervisor, f"headgate-{task.name}")
        code = task.run(link)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        log.exception("%s stops because of an unexpected error", task.title)
    finally:
        with suppress(OSError, ValueError):  # standard output may be closed
            sys.stdout.flush()
            sys.stderr.flush()
    return code


def _end_with(supervisor: int, name: str) -> None:
    """Have Linux kill this process when the supervisor is dead, and give it a name; elsewhere `status_fd` ends."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    libc.prctl(_PR_SET_NAME, name.encode()[:15])
    if os.getppid() != supervisor:
        os._exit(1)  # it died before it could be said
