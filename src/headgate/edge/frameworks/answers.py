"""What callers of an application are told: headers on every answer, a problem document on a refusal."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, TypeAlias

from headgate.core import headers, problem
from headgate.core.header_lines import HeaderLines, T
from headgate.errors import InvalidSettings, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.verdict import Verdict
    from headgate.edge.problems import Unanswerable

    Answer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
    """Status, headers and body."""


class HeaderSet(StrEnum):
    """Which headers say where a caller stands. `Retry-After` is on every refusal."""

    ALL = "all"
    X_RATELIMIT = "x-ratelimit"
    RATELIMIT = "ratelimit"
    NONE = "none"


def header_set(given: object) -> HeaderSet:
    """The set of that name."""
    try:
        return HeaderSet(given)  # type: ignore[arg-type] # that is the question
    except ValueError:
        msg = f"headers is one of {', '.join(HeaderSet)}, not {shown(given)}"
        raise InvalidSettings(msg) from None


_NAMES: Final = {
    HeaderSet.X_RATELIMIT: (headers.LIMIT, headers.REMAINING, headers.RESET, headers.COST),
    HeaderSet.RATELIMIT: (headers.POLICY, headers.STANDING),
    HeaderSet.NONE: (),
}


class Headers(Generic[T]):
    """The headers of one set, in the form that a server wants them in."""

    def __init__(self, which: HeaderSet, name: Callable[[str], T], value: Callable[[str], T]) -> None:
        """`name` and `value` bring names and values of headers into the form."""
        self._lines = HeaderLines(name, value)
        self._nothing = which is HeaderSet.NONE
        self._kept: frozenset[T] | None = None  # all of them
        if which is not HeaderSet.ALL:
            self._kept = frozenset(map(name, (*_NAMES[which], headers.RETRY_AFTER)))

    def for_verdict(self, verdict: Verdict) -> list[tuple[T, T]]:
        """Those that a verdict has."""
        if self._nothing and verdict.allowed:
            return []
        lines = self._lines.for_verdict(verdict)
        return lines if self._kept is None else [line for line in lines if line[0] in self._kept]


def refusal(verdict: Verdict, lines: list[tuple[str, str]]) -> Answer:
    """A refused call's answer, as its rule says."""
    return _answer(verdict.status, lines, verdict.problem())


def unanswerable(reason: Unanswerable) -> Answer:
    """The answer to a call that no rule could be asked about."""
    return _answer(reason.status.value, [*reason.headers], reason.document())


def _answer(status: int, lines: list[tuple[str, str]], document: dict[str, object]) -> Answer:
    body = json.dumps(document).encode() + b"\n"
    kind = ("Content-Type", problem.CONTENT_TYPE)
    return status, [kind, ("Content-Length", str(len(body))), *lines], body
