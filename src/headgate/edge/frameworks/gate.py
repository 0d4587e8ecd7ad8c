"""What all frameworks share: which calls are limited, by which limiter, and what a refused caller is sent."""

from __future__ import annotations

import json
import logging
import re
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from headgate.core import headers as header_names
from headgate.core.endpoint import canonical, matches, normalise_path
from headgate.core.endpoint import problem as pattern_problem
from headgate.core.headers import HeaderLines, T
from headgate.core.problem import CONTENT_TYPE
from headgate.edge.problems import HttpProblem, LogLimit, retry_later
from headgate.errors import InvalidRequest, InvalidSettings, NoRules, Overloaded, StoreError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.core.verdict import Verdict
    from headgate.dataplane.snapshots import Snapshots
    from headgate.edge.frameworks.limits import RouteLimit

    Answer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
    """Status, headers and body."""


class Skipping:
    """Paths that are never limited, written as in rules: health checks, static files."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """`InvalidSettings` if a pattern is invalid, or if every path is skipped."""
        given = [patterns] if isinstance(patterns, str) else list(patterns)
        for pattern in given:
            wrong = pattern_problem(pattern)
            if wrong is not None:
                msg = f"skip: {wrong}"
                raise InvalidSettings(msg)
        self._patterns = [canonical(pattern) for pattern in given]
        if "/*" in self._patterns:
            msg = "skip contains '/*', so nothing would be limited; remove the middleware if you mean that"
            raise InvalidSettings(msg)

    def __contains__(self, path: object) -> bool:
        """Whether calls to a path pass uncounted."""
        if not self._patterns:
            return False
        normal = normalise_path(str(path))
        return any(matches(pattern, normal) for pattern in self._patterns)


_SERVERS: Final = re.compile(r"(?:^|[/\\])(?:uvicorn|gunicorn|granian|hypercorn|fastapi)(?:[/\\]__main__\.py|\.exe)?$")
_WORKERS: Final = re.compile(r"(?:--workers=?|-w)([0-9]{1,4})")
_WORKER_OPTIONS: Final = frozenset({"--workers", "-w"})
ONE_EACH: Final = (
    "memory:// counts in each process separately, and there are several processes, so every limit would be multiplied; "
    "use one store for all of them, such as redis://host:6379"
)


def is_one_of_several(environ: Mapping[str, object]) -> bool:
    """Whether a WSGI server reports other processes. Python's own server always does, and does not count."""
    server = environ.get("SERVER_SOFTWARE")
    return bool(environ.get("wsgi.multiprocess")) and isinstance(server, str) and not server.startswith("WSGIServer")


def workers_of(command: Sequence[str]) -> int:
    """How many workers the server's command line starts; 1 if it does not say."""
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
    """Which rate-limit headers are sent. `Retry-After` is on every refusal."""

    ALL = "all"
    X_RATELIMIT = "x-ratelimit"
    RATELIMIT = "ratelimit"
    NONE = "none"


def header_set(given: object) -> HeaderSet:
    """The header set with this name."""
    try:
        return HeaderSet(given)  # type: ignore[arg-type] # StrEnum raises ValueError
    except ValueError:
        msg = f"headers must be one of {', '.join(HeaderSet)}, not {short_repr(given)}"
        raise InvalidSettings(msg) from None


_NAMES: Final = {
    HeaderSet.X_RATELIMIT: (header_names.LIMIT, header_names.REMAINING, header_names.RESET, header_names.COST),
    HeaderSet.RATELIMIT: (header_names.POLICY, header_names.STANDING),
    HeaderSet.NONE: (),
}


class Headers(Generic[T]):
    """The headers of one set, in the form that a server takes."""

    def __init__(self, which: HeaderSet, name: Callable[[str], T], value: Callable[[str], T]) -> None:
        """`name` and `value` convert the names and values of headers."""
        self._lines = HeaderLines(name, value)
        self._nothing = which is HeaderSet.NONE
        self._kept: frozenset[T] | None = None  # all of them
        if which is not HeaderSet.ALL:
            self._kept = frozenset(map(name, (*_NAMES[which], header_names.RETRY_AFTER)))

    def for_verdict(self, verdict: Verdict) -> list[tuple[T, T]]:
        """The headers for a verdict."""
        if self._nothing and verdict.allowed:
            return []
        lines = self._lines.for_verdict(verdict)
        return lines if self._kept is None else [line for line in lines if line[0] in self._kept]


def refusal(verdict: Verdict, lines: list[tuple[str, str]]) -> Answer:
    """The answer to a refused call, as its rule says."""
    return _answer(verdict.status, lines, verdict.problem())


def unanswerable(reason: HttpProblem) -> Answer:
    """The answer to a call that could not be checked."""
    return _answer(reason.status.value, [*reason.headers], reason.document())


def _answer(status: int, lines: list[tuple[str, str]], document: dict[str, object]) -> Answer:
    body = json.dumps(document).encode() + b"\n"
    kind = ("Content-Type", CONTENT_TYPE)
    return status, [kind, ("Content-Length", str(len(body))), *lines], body


log = logging.getLogger("headgate")

LimiterT = TypeVar("LimiterT")


class Gate(Generic[LimiterT]):
    """The limiter with the application's options: skipped paths, headers, limits at routes."""

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
        """`snapshots` hold the active rules of `limiter`; `join` makes a limiter with limits of routes added.

        `awaits_rules` says that rules may arrive later.
        """
        self.skipping = Skipping(skip)
        self._limiter = limiter
        self._snapshots = snapshots
        self._awaits_rules = awaits_rules
        self._join = join
        which = header_set(headers)
        self.headers = Headers(which, str, str).for_verdict
        """The headers on the answer to an admitted call."""
        self.lines = Headers(which, lambda name: name.lower().encode(), str.encode).for_verdict
        """The same, as ASGI takes them."""
        self._lines = LogLimit()
        self._joined: dict[tuple[RouteLimit, ...], LimiterT] = {}

    def limiter_for(self, limits: tuple[RouteLimit, ...]) -> LimiterT:
        """The limiter for a route with these limits."""
        if not limits:
            return self._limiter
        joined = self._joined.get(limits)
        if joined is None:
            joined = self._joined[limits] = self._join(limits)
        return joined

    def check_it_limits(self, limits: Iterable[RouteLimit]) -> None:
        """`InvalidSettings` if there is nothing to enforce: no active rule, and no limit at any route."""
        if (
            self._awaits_rules
            or any(rule.enabled for rule in self._snapshots.current.rule_set.rules)
            or any(True for _ in limits)
        ):
            return
        msg = "nothing would be limited: there are no rules, and no route has a limit; pass rules='rules.yaml'"
        raise InvalidSettings(msg)

    def refusal(self, verdict: Verdict) -> Answer:
        """The answer to a refused call."""
        return refusal(verdict, self.headers(verdict))

    def problem(self, error: Exception) -> Answer:
        """The answer if there is no verdict. Errors of the store are logged, at a limited rate."""
        times = self._lines.count(type(error).__name__) if isinstance(error, StoreError) else 0
        if times:
            log.error("check failed: %s (%d times since the last log line)", error, times)
        return _problem(error)


def _problem(error: Exception) -> Answer:
    if isinstance(error, HttpProblem):
        return unanswerable(error)
    if isinstance(error, NoRules | Overloaded):
        return unanswerable(retry_later(error))
    if isinstance(error, InvalidRequest):
        return unanswerable(HttpProblem(HTTPStatus.BAD_REQUEST, str(error)))
    return unanswerable(HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, "the counter store is unavailable"))
