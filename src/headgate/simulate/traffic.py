"""Traffic that has been: requests with their times, to be decided again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.own_limits import OwnLimits
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.errors import InvalidRequest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.core.units import Micros

_MOST_REMEMBERED: Final = 10_000
_MOST_EXAMPLES: Final = 5
_MAX_STANDS_FOR: Final = 10_000_000
"""More than a process decides in a minute."""
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
"""What is needed of an event, beside its time, to decide it again."""
_new = tuple.__new__  # half the time of Call(...)


class Recorded(NamedTuple):
    """What became of a request when it was made."""

    decision: str
    """An `EventKind`, as text."""
    rule: str | None
    source: str
    server: str
    sequence: int
    stands_for: int = 1
    """How many refusals alike were made, of which only this one was recorded."""


class Call(NamedTuple):
    """One request that was made."""

    at: Micros
    request: Request
    """With what its caller said that it costs."""
    recorded: Recorded | None = None

    @property
    def order(self) -> tuple[Micros, str, int]:
        """What calls are sorted by: time, and where that is the same, as their process decided them."""
        known = self.recorded
        return (self.at, "", 0) if known is None else (self.at, known.server, known.sequence)


class Skipped:
    """What tells of no call, counted, and what is wrong with the first of it."""

    __slots__ = ("count", "examples")

    def __init__(self) -> None:
        """Nothing yet."""
        self.count = 0
        self.examples: list[str] = []

    def add(self, sentence: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(sentence)


class Calls:
    """Makes calls of events as they are stored."""

    def __init__(self) -> None:
        """Own limits are read once for all events that have the same."""
        self._limits: dict[str, OwnLimits] = {}

    def page(self, events: Iterable[tuple[Micros, Sequence[Any]]], skipped: Skipped) -> list[Call]:
        """The calls of events with their times, those that cannot be read left out."""
        made: list[Call] = []
        for at, event in events:
            try:
                made.append(self.of(at, event))
            except InvalidRequest as error:
                skipped.add(str(error))
        return made

    def of(self, at: Micros, event: Sequence[Any]) -> Call:
        """The call of one event, in the order of `COLUMNS`; `InvalidRequest` if its `extra` is none."""
        user, tenant, api_key, ip, tier, method, path, rule, decision, source, server, sequence, extra = event
        rest = _NOTHING
        if extra is not None:
            rest = self._rest(extra)
            user, ip = user or extra.get("user"), ip or extra.get("ip")  # which had no place in their columns
        request = _new(Request, (user, tenant, api_key, ip, tier, method, path, *rest))
        stands_for = 1 if extra is None else _stands_for(extra.get("stands_for"))
        known = _new(Recorded, (decision, rule, source or "", server or "", sequence or 0, stands_for))
        made: Call = _new(Call, (at, request, known))
        return made

    def _rest(self, extra: object) -> tuple[Any, ...]:
        if not isinstance(extra, Mapping):
            msg = f"what is extra about an event maps names to values; {shown(extra)} does not"
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
                msg = f"limits of one's own are by owner and rule, not {shown(data)}"
                raise InvalidRequest(msg)
            if len(self._limits) >= _MOST_REMEMBERED:
                self._limits.clear()
            found = self._limits[name] = OwnLimits.from_data(data)
        return found


def _stands_for(number: object) -> int:
    """How many requests an event stands for, as it says; 1 where it does not."""
    return max(1, min(number, _MAX_STANDS_FOR)) if type(number) is int else 1
