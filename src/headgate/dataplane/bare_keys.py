"""Keys and limits without rules: what `Limiter.hit`, `reserve` and `slot` count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.decision import Hit
from headgate.core.ids import new_id
from headgate.core.keys import check_key, hit_key
from headgate.core.limit import Rate, Slots, Unlimited, parse_limit
from headgate.core.meter import Algorithm, Calendars, Meter, check_cost, meter_for
from headgate.core.units import MAX_PERIOD, SECOND, Micros
from headgate.errors import InvalidLimit, InvalidRequest

if TYPE_CHECKING:
    from headgate.core.failure_policy import FailurePolicy
    from headgate.core.limit import Limit

_REMEMBERED_LIMITS = 4_096
_ONE = 1
_new = tuple.__new__  # half the time of Hit(...)


class BareKeys:
    """Makes hits of keys and limits as people write them, and remembers what the limits meant."""

    def __init__(self, calendars: Calendars, failure_policy: FailurePolicy | None = None) -> None:
        """`calendars` gives calendar limits their present bounds; `failure_policy` holds for all keys."""
        self._calendars = calendars
        self._failure_policy = failure_policy
        self.meters: dict[str, dict[object, Meter]] = {
            algorithm.value: {} for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY
        }
        """What limits mean, by algorithm and limit as written; without those that change with the calendar."""
        self._calendar_meters: dict[object, Meter] = {}

    def hit(self, key: str, limit: str | Limit, cost: int, algorithm: str) -> Hit | None:
        """One hit; None where the limit is `unlimited`."""
        try:
            meter: Meter | None = self.meters[algorithm][limit]
        except (KeyError, TypeError):  # a limit seen for the first time, or not even hashable
            meter = self._meter(limit, algorithm)
        if cost is not _ONE:
            check_cost(cost)
        if meter is None:
            return None
        name = hit_key(check_key(key), meter.code)
        return _new(Hit, (name, meter, cost, None, None, False, self._failure_policy))  # every field there is

    def slot(self, key: str, limit: str | Limit, ttl: float | None = None) -> Hit:
        """A hit for one slot, with a holder of its own."""
        parsed = _parsed(limit)
        if not isinstance(parsed, Slots):
            msg = f"slot needs a limit like '3 concurrent', not '{parsed}'"
            raise InvalidLimit(msg)
        meter = Meter(parsed, Algorithm.CONCURRENCY)
        lasts = parsed.ttl if ttl is None else span(ttl)
        return Hit(hit_key(check_key(key), meter.code), meter, 1, new_id(), lasts, failure_policy=self._failure_policy)

    def either(self, key: str, limit: str | Limit, cost: int, algorithm: str) -> Hit | None:
        """A hit, or one for slots where the limit counts holders; for looking, not for taking."""
        parsed = _parsed(limit)
        if isinstance(parsed, Slots):
            return self.slot(key, parsed)._replace(cost=check_cost(cost))
        return self.hit(key, limit, cost, algorithm)

    def _meter(self, limit: str | Limit, algorithm: str) -> Meter | None:
        name = _algorithm(algorithm)
        try:
            known = self._calendar_meters.get((limit, name))
        except TypeError:  # not even hashable
            known = None
        if known is None:
            parsed = _parsed(limit)
            if isinstance(parsed, Slots):
                msg = f"'{parsed}' counts slots; use slot()"
                raise InvalidLimit(msg)
            known = meter_for(parsed, name)
            if known is None:
                return None
            self._remember(limit, known)
        return self._calendars.current(known) if known.is_calendar else known

    def _remember(self, limit: str | Limit, meter: Meter) -> None:
        if not meter.is_calendar:
            known = self.meters[meter.algorithm]
            if len(known) >= _REMEMBERED_LIMITS:
                known.clear()
            known[limit] = meter
            return
        if len(self._calendar_meters) >= _REMEMBERED_LIMITS:
            self._calendar_meters.clear()
            self._calendars.forget()
        self._calendar_meters[limit, meter.algorithm] = meter


def _parsed(limit: object) -> Limit:
    """What a limit means. One that was put together by hand is read like any other, so that its numbers are checked."""
    return parse_limit(str(limit) if isinstance(limit, Rate | Slots | Unlimited) else limit)


def _algorithm(name: str) -> Algorithm:
    try:
        return Algorithm(name)
    except ValueError:
        msg = f"{name!r} is not an algorithm; there are {', '.join(Algorithm)}"
        raise InvalidLimit(msg) from None


def span(seconds: float) -> Micros:
    """A ttl given in seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_PERIOD // SECOND:
        msg = f"a ttl is a number of seconds above 0, not {seconds!r}"
        raise InvalidRequest(msg)
    return max(1, round(seconds * SECOND))
