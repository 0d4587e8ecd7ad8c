"""The faults between a program and its Redis server, by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What a `FaultProxy` does to the connections that go through it."""

    NONE = "none"
    """Everything passes."""

    SILENT = "silent"
    """Connections are accepted and read, and never answered. Commands are lost, and existing connections are reset
    when the fault ends. A network partition."""

    STALLED = "stalled"
    """Nothing passes, and nothing is lost: traffic continues when the fault ends. A frozen server."""

    REFUSED = "refused"
    """No process listens, and existing connections are reset. A server that is not running."""

    SLOW = "slow"
    """Every answer is delayed by some seconds, and one in N by more."""

    CUT = "cut"
    """Commands are executed; the next answer stops in the middle, and the connection closes."""

    RESET = "reset"
    """A connection is reset as soon as a command arrives; the command is not executed."""

    SAYS = "says"
    """Every command gets an error and is not executed."""

    DUPLICATE = "duplicate"
    """Every answer is sent twice."""

    GARBAGE = "garbage"
    """Every command gets an answer that is not the Redis protocol, and is not executed."""


class ErrorLine(StrEnum):
    """Redis's own error messages, word for word. Valkey replaces the name Redis with its own."""

    LOADING = "LOADING Redis is loading the dataset in memory"
    READONLY = "READONLY You can't write against a read only replica."
    OOM = "OOM command not allowed when used memory > 'maxmemory'."
    BUSY = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
    NOAUTH = "NOAUTH Authentication required."
    MISCONF = (
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. "
        "Commands that may modify the data set are disabled, because this instance is configured to report "
        "errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). "
        "Please check the Redis logs for details about the RDB error."
    )
    CLUSTERDOWN = "CLUSTERDOWN The cluster is down"
    MASTERDOWN = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."


@dataclass(frozen=True, slots=True)
class Playing:
    """A fault with its parameters."""

    fault: Fault = Fault.NONE
    seconds: float = 0
    answer: bytes = b""
    stall: float = 0
    """One answer in `one_in`, with all that follow it, takes this many seconds longer."""
    one_in: int = 100
