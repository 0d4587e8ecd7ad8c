"""What can go wrong between a program and its Redis server, by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What a `FaultProxy` does to the connections that go through it."""

    NONE = "none"
    """Everything passes."""

    SILENT = "silent"
    """Connections are accepted and read, and nothing is ever answered; what was sent is lost, and connections
    that were there are reset when it ends. A network that is cut in two."""

    STALLED = "stalled"
    """Nothing passes, and nothing is lost: it goes on where it was when it ends. A server that is frozen."""

    REFUSED = "refused"
    """Nothing listens, and connections that were there are reset. A server that is not running."""

    SLOW = "slow"
    """Every answer comes so many seconds later, and every so many-th later still."""

    CUT = "cut"
    """Commands are carried out; the next answer breaks off in the middle, and the connection ends."""

    RESET = "reset"
    """A connection is reset as soon as a command comes in, which is not carried out."""

    SAYS = "says"
    """Every command is answered by an error, and not carried out."""

    DUPLICATE = "duplicate"
    """Everything that is answered is answered twice."""

    GARBAGE = "garbage"
    """Every command is answered by something that is not the Redis protocol, and not carried out."""


class ErrorLine(StrEnum):
    """What Redis says when it cannot do what it is asked, word for word. Valkey puts its own name for Redis's."""

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
    """A fault with what it needs to know."""

    fault: Fault = Fault.NONE
    seconds: float = 0
    answer: bytes = b""
    stall: float = 0
    """How many seconds more one answer in `one_in` takes, with all that follow it."""
    one_in: int = 100
