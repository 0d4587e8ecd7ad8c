"""What all frameworks share: everything about a call but the waiting."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.edge.frameworks.answers import Headers, header_set, refusal, unanswerable
from headgate.edge.frameworks.skipping import Skipping
from headgate.edge.log_limit import LogLimit
from headgate.edge.problems import Unanswerable, not_now
from headgate.errors import InvalidRequest, InvalidSettings, NoRules, Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.core.verdict import Verdict
    from headgate.dataplane.snapshots import Snapshots
    from headgate.edge.frameworks.answers import Answer
    from headgate.edge.frameworks.limits import RouteLimit

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
