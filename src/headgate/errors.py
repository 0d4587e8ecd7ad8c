"""Every exception headgate raises, in one tree.

A denial is a value (a `Verdict`), not an exception. The exceptions to that are
`Refused` and `AcquireTimeout`: a ``with`` block cannot be skipped, so the context
managers raise when the body must not run, and `acquire` when it cannot go on.
"""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Decision
    from headgate.core.verdict import Verdict

_SHOWN: Final = 60
_repr = Repr()
_repr.maxlevel = 3
_repr.maxstring = _repr.maxother = 2 * _SHOWN


def short_repr(value: object) -> str:
    """A value as it stands in a message: in one line, and never longer than a glance."""
    try:
        text = _repr.repr(value)
    except ValueError:  # Python does not write out whole numbers of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class HeadgateError(Exception):
    """Anything that headgate raises on purpose."""


class InvalidLimit(HeadgateError, ValueError):
    """A limit's text does not follow the grammar, or its numbers are out of range."""


class InvalidRequest(HeadgateError, ValueError):
    """A request, key or cost cannot be given a meaning."""


class InvalidSettings(HeadgateError, ValueError):
    """A setting (environment variable, option or store address) is malformed."""


class WrongUse(InvalidSettings, TypeError):
    """A decorator, limit or option is used in a way that has no meaning; the message shows the right line."""


class Problem(NamedTuple):
    """One thing that is wrong with a rule set, and where."""

    path: tuple[str | int, ...]
    message: str

    @property
    def field(self) -> str:
        """The path in words: ``rules[2].match.methods``."""
        parts: list[str] = []
        for part in self.path:
            # Names come from files and callers: an unusual one is quoted, so that it cannot fake a line of its own.
            if isinstance(part, str) and part.isprintable() and 0 < len(part) <= _SHOWN:
                parts.append(f".{part}" if parts else part)
            else:
                parts.append(f"[{short_repr(part)}]")
        return "".join(parts)

    def __str__(self) -> str:
        """Say where and what, in one line."""
        return f"{self.field}: {self.message}" if self.path else self.message


class InvalidFields(HeadgateError, ValueError):
    """Something that was to be stored is malformed; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Keep the problems."""
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class NotFound(HeadgateError):
    """There is nothing of that name."""


class Conflict(HeadgateError):
    """It cannot be done as things stand: the name is taken, or something else still needs it."""


class Stale(HeadgateError):
    """Another client has changed it since it was read."""


class Forbidden(HeadgateError):
    """The caller may not do that."""


class InvalidRules(HeadgateError, ValueError):
    """A rule set was refused as a whole; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], lines: Sequence[str] | None = None) -> None:
        """Keep the problems; `lines` replaces their text where a file and line are known."""
        self.problems = tuple(problems)
        self.lines = tuple(lines) if lines is not None else tuple(map(str, self.problems))
        super().__init__("\n".join(self.lines))


class Refused(HeadgateError):
    """A reservation or slot was refused, so the body of its ``with`` block did not run."""

    def __init__(self, verdict: Verdict) -> None:
        """Keep the verdict: it says why, and when to come back."""
        self.verdict = verdict
        wait = verdict.retry_after
        when = "it can never be admitted" if wait is None else f"try again in {wait:.3f} s"
        super().__init__(f"refused by {verdict.policy}: {when}")


class AcquireTimeout(HeadgateError, TimeoutError):
    """Something was not acquired, because it would have to be waited for longer than its caller wants to.

    Nothing was counted. It is raised as soon as that is certain, not only when the time has passed.
    """

    def __init__(self, timeout: float, seconds: float, verdict: Verdict | None = None) -> None:
        """`seconds` is how long to wait at least from now on, as far as is known, `verdict` the last one, if any."""
        self.timeout = timeout
        self.seconds = seconds
        self.verdict = verdict
        why = "others wait before it" if verdict is None else f"limited by {verdict.policy}"
        super().__init__(f"not admitted within {timeout:g} s: {why}, and the next try is in {seconds:.3f} s")


class WaitTooLong(HeadgateError):
    """A call to a limited API was not sent, because it would have to wait longer than its caller wants to."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long it would have to wait from now on, as far as that is known."""
        self.seconds = seconds
        super().__init__(f"the call would have to wait {seconds:.3f} s; raise max_wait, or call less often")


class CircuitOpen(HeadgateError):
    """A call to a limited API was not sent, because the API has refused too often in a row."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long the circuit stays open."""
        self.seconds = seconds
        super().__init__(f"circuit open for {seconds:.3f} s: the API has refused too often in a row")


class StoreError(HeadgateError):
    """A counter store could not answer.

    `transient` says whether the same call may succeed later: true for a lost
    server, false for a call that the store can never execute.
    """

    def __init__(self, message: str, *, transient: bool) -> None:
        """Say what failed, and whether trying later makes sense."""
        self.transient = transient
        super().__init__(message)


class Overloaded(HeadgateError):
    """A check was not decided, because this process has more in flight than it can answer in time.

    Nothing was counted. It says nothing about the store, which is well as far as is known.
    """

    def __init__(self, message: str = "too many checks are in flight", *, retry_after: float = 1.0) -> None:
        """`retry_after` is how many seconds later it is worth trying again."""
        self.retry_after = retry_after
        super().__init__(message)


class NoRules(HeadgateError):
    """A request was not decided, because no rule set is known here yet, not even an empty one.

    Nothing was counted. `HEADGATE_ON_NO_RULES` set to ``allow`` admits such requests instead.
    """

    def __init__(self, *, retry_after: float = 1.0) -> None:
        """`retry_after` is how many seconds later it is worth trying again."""
        self.retry_after = retry_after
        super().__init__(
            "no rules are known yet: database, Redis, rules file and saved rules are missing or unavailable"
        )


class DatabaseError(HeadgateError):
    """The database could not answer.

    `transient` says whether it may later, `perhaps_done` whether a change may have been made all the same.
    """

    def __init__(self, message: str, *, transient: bool, perhaps_done: bool = False) -> None:
        """Say what failed, and whether trying later makes sense."""
        self.transient = transient
        self.perhaps_done = perhaps_done
        super().__init__(message)


class SinkError(HeadgateError):
    """Events or counts could not be brought to where they are kept; they stay in the spool, and it is tried again."""


class ArchiveError(HeadgateError):
    """An archive or backup cannot be written or read, or is damaged; the message names the file."""


class PartlyAnswered(StoreError):
    """Some of a request's counters were taken, and the servers of the others did not answer."""

    def __init__(self, error: StoreError, decisions: Sequence[Decision | None]) -> None:
        """`decisions` has None where there is no answer."""
        self.decisions = decisions
        super().__init__(str(error), transient=error.transient)
