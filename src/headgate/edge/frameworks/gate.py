"""What all frameworks share: which calls are limited, by which limiter, and what a refused caller is sent."""

from __future__ import annotations

import json
import logging
import re
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from headgate.core import headers as header_names
from headgate.core.endpoint import canonical, matches
from headgate.core.endpoint import problem as pattern_problem
from headgate.core.header_lines import HeaderLines, T
from headgate.core.path import normalise_path
from headgate.core.problem import CONTENT_TYPE
from headgate.edge.log_limit import LogLimit
from headgate.edge.problems import Unanswerable, not_now
from headgate.errors import InvalidRequest, InvalidSettings, NoRules, Overloaded, StoreError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.core.verdict import Verdict
    from headgate.dataplane.snapshots import Snapshots
    from headgate.edge.frameworks.limits import RouteLimit

    Answer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
    """Status, headers and body."""


class Skipping:
    """A list of endpoints, written as in rules."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raise `InvalidSettings` if one of them cannot be matched, or if they leave nothing to limit."""
        given = [patterns] if isinstance(patterns, str) else list(patterns)
        for pattern in given:
            wrong = pattern_problem(pattern)
            if wrong is not None:
                msg = f"skip: {wrong}"
                raise InvalidSettings(msg)
        self._patterns = [canonical(pattern) for pattern in given]
        if "/*" in self._patterns:
            msg = "skip has '/*', so that nothing would ever be limited; leave headgate out if you mean that"
            raise InvalidSettings(msg)

    def __contains__(self, path: object) -> bool:
        """Whether calls to a path pass without being counted."""
        if not self._patterns:
            return False
        normal = normalise_path(str(path))
        return any(matches(pattern, normal) for pattern in self._patterns)


_SERVERS: Final = re.compile(r"(?:^|[/\\])(?:uvicorn|gunicorn|granian|hypercorn|fastapi)(?:[/\\]__main__\.py|\.exe)?$")
_WORKERS: Final = re.compile(r"(?:--workers=?|-w)([0-9]{1,4})")
_WORKER_OPTIONS: Final = frozenset({"--workers", "-w"})
ONE_EACH: Final = (
    "memory:// counts in each process for itself, and there are several, so every limit would be multiplied; "
    "give all of them one store, such as redis://host:6379"
)


def is_one_of_several(environ: Mapping[str, object]) -> bool:
    """Whether a WSGI server says that other processes answer too; test clients and Python's own server always do."""
    server = environ.get("SERVER_SOFTWARE")
    return bool(environ.get("wsgi.multiprocess")) and isinstance(server, str) and not server.startswith("WSGIServer")


def workers_of(command: Sequence[str]) -> int:
    """How many workers a server was count to start by its command; 1 if that cannot be seen."""
    if not command or not _SERVERS.search(command[0]):
        return 1
    count = 1
    for index, word in enumerate(command[1:], 1):
        found = _WORKERS.fullmatch(
            f"--workers={command[index + 1]}" if word in _WORKER_OPTIONS and index + 1 < len(command) else word
        )
        if found is not None:
            count = int(found[1])
    return count


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
    HeaderSet.X_RATELIMIT: (header_names.LIMIT, header_names.REMAINING, header_names.RESET, header_names.COST),
    HeaderSet.RATELIMIT: (header_names.POLICY, header_names.STANDING),
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
            self._kept = frozenset(map(name, (*_NAMES[which], header_names.RETRY_AFTER)))

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
    kind = ("Content-Type", CONTENT_TYPE)
    return status, [kind, ("Content-Length", str(len(body))), *lines], body


log = logging.getLogger("headgate")

LimiterT = TypeVar("LimiterT")


class Gate(Generic[LimiterT]):
    """The limiter with what the application said about skipping, headers and limits at routes."""

    def __init__(
        self,
        limiter: LimiterT,
        snapshots: Snapshots,
        join: Callable[[Sequence[RouteLimit]], LimiterT],
        *,
        skip: Iterable[str] = (),
        headers: str = "all",
        awaits_rules: bool = False,
    ) -> None:
        """`snapshots` are the rules that `limiter` decides by; `join` makes one with limits of routes beside them.

        `awaits_rules` says that there may be some later on.
        """
        self.skipping = Skipping(skip)
        self._limiter = limiter
        self._snapshots = snapshots
        self._awaits_rules = awaits_rules
        self._join = join
        which = header_set(headers)
        self.headers = Headers(which, str, str).for_verdict
        """What goes with the answer to a call that was admitted."""
        self.lines = Headers(which, lambda name: name.lower().encode(), str.encode).for_verdict
        """The same, as ASGI has it."""
        self._lines = LogLimit()
        self._joined: dict[tuple[RouteLimit, ...], LimiterT] = {}

    def limiter_for(self, limits: tuple[RouteLimit, ...]) -> LimiterT:
        """The limiter for a route at which these limits stand."""
        if not limits:
            return self._limiter
        joined = self._joined.get(limits)
        if joined is None:
            joined = self._joined[limits] = self._join(limits)
        return joined

    def check_it_limits(self, limits: Iterable[RouteLimit]) -> None:
        """Raise `InvalidSettings` if there is nothing to enforce: no rule in force, and no limit at any route."""
        if (
            self._awaits_rules
            or any(rule.enabled for rule in self._snapshots.current.rule_set.rules)
            or any(True for _ in limits)
        ):
            return
        msg = "headgate would limit nothing: it has no rules, and no route has a limit; give it rules='rules.yaml'"
        raise InvalidSettings(msg)

    def refusal(self, verdict: Verdict) -> Answer:
        """What a refused caller is answered."""
        return refusal(verdict, self.headers(verdict))

    def problem(self, error: Exception) -> Answer:
        """What the caller is answered where there is no verdict; a fault of the store is logged, now and then."""
        times = self._lines.count(type(error).__name__) if isinstance(error, StoreError) else 0
        if times:
            log.error("no decision: %s (%d such since the last line)", error, times)
        return _problem(error)


def _problem(error: Exception) -> Answer:
    if isinstance(error, Unanswerable):
        return unanswerable(error)
    if isinstance(error, NoRules | Overloaded):
        return unanswerable(not_now(error))
    if isinstance(error, InvalidRequest):
        return unanswerable(Unanswerable(HTTPStatus.BAD_REQUEST, str(error)))
    return unanswerable(Unanswerable(HTTPStatus.SERVICE_UNAVAILABLE, "the counters are out of reach"))
