"""Past requests with their times and, where they were recorded, their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.own_limits import OwnLimits
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.core.units import Micros

_MAX_CACHED: Final = 10_000
_MAX_EXAMPLES: Final = 5
_MAX_STANDS_FOR: Final = 10_000_000
"""More than a process decides in a minute, so a larger number is wrong."""
_NOTHING: Final = (NO_ATTRIBUTES, None, None, None, False)
COLUMNS: Final = (
    "user",
    "tenant",
    "api_key",
    "ip",
    "tier",
    "method",
    "endpoint",
    "rule",
    "decision",
    "source",
    "server",
    "sequence",
    "extra",
)
"""The columns of an event, besides its time, that are needed to decide it again."""
_new = tuple.__new__  # half the time of LoggedRequest(...)


class RecordedOutcome(NamedTuple):
    """The decision on a request when it was made."""

    decision: str
    """An `EventKind`, as text."""
    rule: str | None
    source: str
    server: str
    sequence: int
    stands_for: int = 1
    """The number of equal denials that this recorded one stands for."""


class LoggedRequest(NamedTuple):
    """One past request, from an event or a log."""

    at: Micros
    request: Request
    """With the cost that the caller gave."""
    recorded: RecordedOutcome | None = None

    @property
    def order(self) -> tuple[Micros, str, int]:
        """The sort key: time; at equal times, the order in which a process decided."""
        known = self.recorded
        return (self.at, "", 0) if known is None else (self.at, known.server, known.sequence)


class Span(NamedTuple):
    """A time span of traffic."""

    start: Micros
    """Requests before it are ignored."""
    since: Micros
    """Requests before it fill the counters and are not reported."""
    until: Micros


class Skipped:
    """Counts the lines or events that are not a request, with the reasons of the first."""

    __slots__ = ("count", "examples")

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0
        self.examples: list[str] = []

    def add(self, reason: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(reason)


class EventParser:
    """Turns stored events into requests."""

    def __init__(self) -> None:
        """Equal own limits of several events are parsed once."""
        self._limits: dict[str, OwnLimits] = {}

    def page(self, events: Iterable[tuple[Micros, Sequence[Any]]], skipped: Skipped) -> list[LoggedRequest]:
        """The requests of events with their times; events that cannot be read go to `skipped`."""
        made: list[LoggedRequest] = []
        for at, event in events:
            try:
                made.append(self.of(at, event))
            except InvalidRequest as error:
                skipped.add(str(error))
        return made

    def of(self, at: Micros, event: Sequence[Any]) -> LoggedRequest:
        """The request of one event, given in the order of `COLUMNS`; `InvalidRequest` if its `extra` is malformed."""
        user, tenant, api_key, ip, tier, method, path, rule, decision, source, server, sequence, extra = event
        rest = _NOTHING
        if extra is not None:
            rest = self._rest(extra)
            user, ip = user or extra.get("user"), ip or extra.get("ip")  # values that did not fit their columns
        request = _new(Request, (user, tenant, api_key, ip, tier, method, path, *rest))
        stands_for = 1 if extra is None else _stands_for(extra.get("stands_for"))
        known = _new(RecordedOutcome, (decision, rule, source or "", server or "", sequence or 0, stands_for))
        made: LoggedRequest = _new(LoggedRequest, (at, request, known))
        return made

    def _rest(self, extra: object) -> tuple[Any, ...]:
        if not isinstance(extra, Mapping):
            msg = f"extra of an event must be a mapping, not {short_repr(extra)}"
            raise InvalidRequest(msg)
        limits = extra.get("limits")
        return (
            extra.get("attributes") or NO_ATTRIBUTES,
            extra.get("route"),
            extra.get("cost"),
            None if limits is None else self._own_limits(limits),
            False,
        )

    def _own_limits(self, data: object) -> OwnLimits:
        name = repr(data)
        found = self._limits.get(name)
        if found is None:
            if not isinstance(data, Mapping) or not all(isinstance(each, Mapping) for each in data.values()):
                msg = f"limits in extra must be a mapping by owner and rule, not {short_repr(data)}"
                raise InvalidRequest(msg)
            if len(self._limits) >= _MAX_CACHED:
                self._limits.clear()
            found = self._limits[name] = OwnLimits.from_data(data)
        return found


def _stands_for(number: object) -> int:
    """The number of requests that an event stands for; 1 if it does not say."""
    return max(1, min(number, _MAX_STANDS_FOR)) if type(number) is int else 1
