"""What all frameworks share: which calls are limited, by which limiter, and what a refused caller is sent."""

from __future__ import annotations

import json
import logging
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core.endpoint import canonical, matches
from headgate.core.endpoint import problem as pattern_problem
from headgate.core.path import normalise_path
from headgate.core.problem import CONTENT_TYPE
from headgate.core.verdict import bare_plan
from headgate.core.verdict import verdict as verdict_of
from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.header_sets import Headers, header_set, names_in, own_names, reset_meaning
from headgate.edge.frameworks.limits import WITHOUT_CALL, RoutePlans
from headgate.edge.frameworks.options import settled
from headgate.edge.problems import HttpProblem, LogLimit, retry_later
from headgate.errors import InvalidRequest, InvalidSettings, NoRules, Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.core.matching import Plan
    from headgate.core.request import Request
    from headgate.core.rule import Rule
    from headgate.core.verdict import Verdict
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.frameworks.limits import RouteLimit
    from headgate.edge.frameworks.options import Setup
    from headgate.edge.frameworks.routes import Route

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


class Gate:
    """The limiter with the application's options: skipped paths, headers, limits at routes and for all others."""

    def __init__(
        self,
        limiter: Limiter,
        plan: Callable[[Request, int | None], Plan],
        setup: Setup,
        default: RouteLimit | None = None,
        *,
        awaits_rules: bool = False,
    ) -> None:
        """`plan` is that of the limiter, or of a limiter around it; `default` holds for routes without a limit.

        `awaits_rules` says that rules may arrive later.
        """
        self.skipping = Skipping(setup.skip)
        self.skips = bool(setup.skip)
        """Whether there are paths that are never limited."""
        self.store = limiter.store
        self.default = () if default is None else (default,)
        self._limiter = limiter
        self._plan = plan
        self._plans = RoutePlans(limiter.snapshots.clock)
        self._setup = setup
        self._awaits_rules = awaits_rules
        which = header_set(setup.headers)
        self.sent_names = names_in(which)
        """The usual names of the headers that are sent."""
        self.has_own_answer = setup.on_refused is not None
        """Whether the application answers refused calls itself."""
        self.names = own = own_names(setup.header_names, which)
        """The application's own names for headers."""
        reset = reset_meaning(setup.reset_header)
        self.headers = Headers(which, str, str, own, reset).for_verdict
        """The headers on the answer to an admitted call."""
        self.lines = Headers(which, lambda name: name.lower().encode(), str.encode, own, reset).for_verdict
        """The same, as ASGI takes them."""
        self._lines = LogLimit()
        self._decide_now = limiter.decide_now if setup.enabled is not False and setup.exempt_when is None else None
        """Decides without waiting, where counters are in this process and no function of the application is asked."""
        if setup.enabled is False:
            log.warning("limits are disabled (HEADGATE_ENABLED or enabled): every call passes, and none is counted")

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The active rules."""
        return tuple(rule for rule in self._limiter.snapshots.current.rule_set.rules if rule.enabled)

    def limits_of(self, route: Route) -> tuple[RouteLimit, ...]:
        """The limits of a route: its own, or the default."""
        return route.limits or self.default

    async def check(
        self, route: Route, request: Request, cost: int | None, call: object, *, has_rules: bool = True
    ) -> Admission:
        """Decide a call; `call` is what functions of the application get. Without rules, only by limits."""
        limits = self.limits_of(route)
        if await self._passes(call):
            return self.passed(route, request)
        observer = self._limiter.observer
        timer = None if observer is None else observer.next_timer()
        started = 0.0 if timer is None else timer()
        plan, counted = await self._planned(self._plan if has_rules else _no_rules, limits, request, cost, call)
        made = await self._limiter.decide(plan)
        if observer is not None:
            observer.offer(request, cost, made, started)
        return Admission(request, made, limits, counted)

    def check_now(self, route: Route, request: Request, *, has_rules: bool = True) -> Admission | None:
        """Fast path of `check`, without coroutines and with plans that are made once; None if a call needs `check`.

        It takes about half the time. `tests/unit/frameworks/test_fast_paths.py` shows that both are equal.
        """
        decide_now, limiter = self._decide_now, self._limiter
        if decide_now is None or limiter.observer is not None:
            return None
        limits = route.limits or self.default
        for limit in limits:
            if not limit.is_plain:
                return None
        snapshots = limiter.snapshots
        current = snapshots.current
        may_match = limiter.follower is not None or snapshots.blocks is not None or not current.is_empty
        if limits and not (has_rules and may_match):
            plan, counted = self._plans.alone(current.number if has_rules else 0, limits, request)
        else:
            plan = self._plan(request, None) if has_rules else bare_plan(None)
            plan, counted = self._plans.join_plain(plan, limits, request, None)
        return None if plan.shadows else Admission(request, decide_now(plan), limits, counted)

    def passed(self, route: Route, request: Request) -> Admission:
        """The admission of a call that is exempt from everything."""
        return Admission(request, verdict_of(bare_plan(None), ()), self.limits_of(route))

    async def peek(self, route: Route, request: Request, call: object) -> Verdict:
        """What `check` would answer, without the watched rules. Changes nothing."""
        if await self._passes(call):
            return verdict_of(bare_plan(None), ())
        plan, _ = await self._planned(self._plan, self.limits_of(route), request, None, call)
        hits = [bound.hit for bound in plan.enforced]
        return verdict_of(plan, await self.store.peek(hits) if hits else ())

    async def reset(self, route: Route, request: Request, call: object) -> None:
        """Forget what was counted for a call's caller at its route, under rules and limits alike."""
        planned = self._limiter.snapshots.plan_counters
        plan, _ = await self._planned(planned, self.limits_of(route), request, None, call)
        await self.store.reset([bound.hit.key for bound in (*plan.enforced, *plan.shadows)])

    async def _planned(
        self,
        plan: Callable[[Request, int | None], Plan],
        limits: tuple[RouteLimit, ...],
        request: Request,
        cost: int | None,
        call: object,
    ) -> tuple[Plan, tuple[tuple[RouteLimit, Rule], ...]]:
        general = plan(request, cost)
        return await self._plans.join(general, limits, request, cost, call) if limits else (general, ())

    async def _passes(self, call: object) -> bool:
        setup = self._setup
        if setup.enabled is False:
            return True
        return (
            setup.exempt_when is not None and call is not WITHOUT_CALL and bool(await settled(setup.exempt_when(call)))
        )

    def check_it_limits(self, limits: Iterable[RouteLimit]) -> None:
        """`InvalidSettings` if there is nothing to enforce: no active rule, and no limit at any route."""
        if (
            self._awaits_rules
            or self._setup.enabled is False
            or self.default
            or self.rules
            or any(True for _ in limits)
        ):
            return
        msg = "nothing would be limited: there are no rules, and no route has a limit; pass rules='rules.yaml'"
        raise InvalidSettings(msg)

    def on_refused(self, admission: Admission) -> Callable[..., Any] | None:
        """The application's own answer to a refused call: of the limit that refused it, or of all."""
        made = admission.verdict
        refusing = [
            bound.rule for bound, each in zip(made.plan.enforced, made.decisions, strict=True) if not each.allowed
        ]
        for limit, rule in admission.counted:
            if limit.options.on_refused is not None and any(rule is each for each in refusing):
                return limit.options.on_refused
        return self._setup.on_refused

    def refusal(self, verdict: Verdict) -> Answer:
        """The answer to a refused call."""
        return refusal(verdict, self.headers(verdict))

    def problem(self, error: Exception) -> Answer:
        """The answer if there is no verdict. Errors of the store are logged, at a limited rate."""
        times = self._lines.count(type(error).__name__) if isinstance(error, StoreError) else 0
        if times:
            log.error("no decision, the counter store failed: %s (%d since the last such line)", error, times)
        return _problem(error)


def _no_rules(_request: Request, _cost: int | None) -> Plan:
    return bare_plan(None)


def _problem(error: Exception) -> Answer:
    if isinstance(error, HttpProblem):
        return unanswerable(error)
    if isinstance(error, NoRules | Overloaded):
        return unanswerable(retry_later(error))
    if isinstance(error, InvalidRequest):
        return unanswerable(HttpProblem(HTTPStatus.BAD_REQUEST, str(error)))
    return unanswerable(HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, "the counter store is unavailable"))
