"""Keys and limits without rules: what `Limiter.hit`, `reserve` and `slot` count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.decision import Hit
from headgate.core.ids import new_id
from headgate.core.keys import check_key, hit_key
from headgate.core.limit import Slots, parse_limit
from headgate.core.meter import Algorithm, Calendars, Meter, check_cost, meter_for
from headgate.core.units import MAX_PERIOD, SECOND, Micros
from headgate.errors import InvalidLimit, InvalidRequest

if TYPE_CHECKING:
    from headgate.core.limit import Limit

_REMEMBERED_LIMITS = 4_096


class BareKeys:
    """Makes hits of keys and limits as people write them, and remembers what the limits meant."""

    def __init__(self, calendars: Calendars) -> None:
        """`calendars` gives calendar limits their present bounds."""
        self._calendars = calendars
        self.meters: dict[str, dict[object, Meter]] = {algorithm.value: {} for algorithm in Algorithm}
        """What limits mean, by algorithm and limit as written; without those that change with the calendar."""
        self._calendar_meters: dict[object, Meter] = {}

    def hit(self, key: str, limit: str | Limit, cost: int, algorithm: str) -> Hit | None:
        """One hit; None where the limit is `unlimited`."""
        meter = self._meter(limit, algorithm)
        check_cost(cost)
        return None if meter is None else Hit(hit_key(check_key(key), meter.code), meter, cost)

    def reservation(self, key: str, limit: str | Limit, cost: int, algorithm: str, ttl: float) -> Hit | None:
        """A hit that is given back after `ttl` seconds unless it is settled."""
        hit = self.hit(key, limit, cost, algorithm)
        return None if hit is None else hit._replace(holder=new_id(), ttl=span(ttl))

    def slot(self, key: str, limit: str | Limit, ttl: float | None) -> Hit:
        """A hit for one slot."""
        parsed = parse_limit(limit) if isinstance(limit, str) else limit
        if not isinstance(parsed, Slots):
            msg = f"slot needs a limit like '3 concurrent', not '{parsed}'"
            raise InvalidLimit(msg)
        hit = self.hit(key, parsed, 1, Algorithm.CONCURRENCY)
        assert hit is not None  # noqa: S101 (slots are never unlimited)
        return hit._replace(holder=new_id(), ttl=parsed.ttl if ttl is None else span(ttl))

    def _meter(self, limit: str | Limit, algorithm: str) -> Meter | None:
        name = _algorithm(algorithm)
        known = self.meters[name].get(limit)
        if known is not None:
            return known
        calendar = self._calendar_meters.get((limit, name))
        if calendar is not None:
            return self._calendars.current(calendar)
        parsed = parse_limit(limit) if isinstance(limit, str) else limit
        if isinstance(parsed, Slots) and name is not Algorithm.CONCURRENCY:
            msg = f"'{parsed}' is held, not hit; use slot()"
            raise InvalidLimit(msg)
        meter = meter_for(parsed, name)
        if meter is None:
            return None
        if meter.is_calendar:
            _remember(self._calendar_meters, (limit, name), meter)
            return self._calendars.current(meter)
        _remember(self.meters[name], limit, meter)
        return meter


def _remember(meters: dict[object, Meter], name: object, meter: Meter) -> None:
    if len(meters) >= _REMEMBERED_LIMITS:
        meters.clear()
    meters[name] = meter


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
