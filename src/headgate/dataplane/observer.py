"""Observers of decisions: the recorder, and listeners that are called after it, where there are any."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.request import Request
    from headgate.core.verdict import Verdict
    from headgate.dataplane.recorder import Timer

log = logging.getLogger("headgate")


class DecisionObserver(Protocol):
    """What the limiter calls before and after each check."""

    @property
    def next_timer(self) -> Callable[[], Timer | None]:
        """Called before a check: the timer, if this one is to be timed."""

    def offer(self, request: Request, cost: int | None, verdict: Verdict, started: float, /) -> None:
        """A request was decided; `started` is the timer's value before the check, 0 if there was none."""


class ObserverChain:
    """An observer that also calls listeners."""

    def __init__(self, observer: DecisionObserver, listeners: Sequence[Callable[[Verdict], None]]) -> None:
        """`listeners` are called with each verdict, after `observer`."""
        self._observer = observer
        self._listeners = listeners

    @property
    def next_timer(self) -> Callable[[], Timer | None]:
        """See `DecisionObserver.next_timer`."""
        return self._observer.next_timer

    def offer(self, request: Request, cost: int | None, verdict: Verdict, started: float, /) -> None:
        """See `DecisionObserver.offer`."""
        self._observer.offer(request, cost, verdict, started)
        for listener in self._listeners:
            listener(verdict)


def log_denial(verdict: Verdict) -> None:
    """Log a verdict that is a denial, at the level debug."""
    if not verdict.allowed:
        rule = None if verdict.rule is None else verdict.rule.name
        fields = {"decision": verdict.id, "rule": rule, "source": verdict.source.value}
        log.debug("decision %s: denied by %s", verdict.id, rule, extra={"fields": fields})
