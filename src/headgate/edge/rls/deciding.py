"""From Envoy's question to a verdict, and back.

A descriptor is a request whose attributes are its entries and, as `domain`, the domain. Entries
named like a part of a request (`user`, `path`, …) are that part too, and `remote_address` is `ip`.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headgate.core import problem
from headgate.core.decision import Source
from headgate.core.matching import Plan
from headgate.core.meter import Algorithm
from headgate.core.path import is_too_long
from headgate.core.request import Request
from headgate.core.rule import Action, Response, Rule
from headgate.core.units import DAY, HOUR, MINUTE, SECOND, WEEK
from headgate.core.verdict import bare_plan
from headgate.dataplane import together
from headgate.dataplane.together import Part, Purpose, Together
from headgate.edge.rls.messages import LARGEST, Answer, Code, CurrentLimit, Status, Unit
from headgate.errors import InvalidRequest, StoreError, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.core.meter import Meter
    from headgate.core.verdict import Verdict
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.rls.messages import Descriptor, Override, Question
    from headgate.errors import Overloaded

MAX_DESCRIPTORS: Final = 100
"""Of one question. Each is decided and answered, in about twenty microseconds."""
MAX_ENTRIES: Final = 256
"""Of one descriptor."""
_DOMAIN: Final = "domain"
_REPORT: Final = "headgate_report"
_TAKE: Final = Purpose.TAKE  # to look it up takes a tenth of a decision
_PERIODS: Final = {
    Unit.SECOND: "second",
    Unit.MINUTE: "minute",
    Unit.HOUR: "hour",
    Unit.DAY: "day",
    Unit.WEEK: "7 days",
    Unit.MONTH: "30 days",  # as long as they are in Envoy's own service
    Unit.YEAR: "365 days",
}
_UNITS: Final = {
    SECOND: Unit.SECOND,
    MINUTE: Unit.MINUTE,
    HOUR: Unit.HOUR,
    DAY: Unit.DAY,
    WEEK: Unit.WEEK,
    **dict.fromkeys((28 * DAY, 29 * DAY, 30 * DAY, 31 * DAY), Unit.MONTH),
    **dict.fromkeys((365 * DAY, 366 * DAY), Unit.YEAR),
}
_NOTHING_PASSES: Final = Plan(0, (), (), Rule("override", action=Action.BLOCK, response=Response(429)), ())
_CONTENT_TYPE: Final = ("content-type", problem.CONTENT_TYPE)
_encode: Final = msgspec.json.Encoder().encode


class Asked(NamedTuple):
    """One descriptor as the limiter sees it: a request, or a key with a limit of its own."""

    request: Request
    key: str
    limit: str | None
    """None is by the rules; an empty one lets nothing pass."""
    cost: int | None
    purpose: Purpose


def prepare(question: Question) -> tuple[Asked, ...]:
    """What a question asks; `InvalidRequest` if it is not a sound one."""
    if not question.domain:
        msg = "the domain must not be empty"
        raise InvalidRequest(msg)
    if not question.descriptors:
        msg = "there must be at least one descriptor"
        raise InvalidRequest(msg)
    if len(question.descriptors) > MAX_DESCRIPTORS:
        many = len(question.descriptors)
        msg = f"{many} descriptors are too many for one question, which has at most {MAX_DESCRIPTORS}"
        raise InvalidRequest(msg)
    return tuple(_asked(question, descriptor) for descriptor in question.descriptors)


def _asked(question: Question, descriptor: Descriptor) -> Asked:
    if not descriptor.entries or not all(key for key, _ in descriptor.entries):
        msg = "a descriptor has at least one entry, and every entry a key"
        raise InvalidRequest(msg)
    if len(descriptor.entries) > MAX_ENTRIES:
        msg = f"{len(descriptor.entries)} entries are too many for one descriptor, which has at most {MAX_ENTRIES}"
        raise InvalidRequest(msg)
    hits, purpose = descriptor.hits_addend, _TAKE
    attributes = {_DOMAIN: question.domain, **dict(descriptor.entries)}
    is_report = attributes.pop(_REPORT, None) is not None
    if descriptor.is_negative_hits:
        purpose = Purpose.REFUND
    elif hits == 0:
        purpose, hits = Purpose.LOOK, 1
    elif is_report:
        purpose = Purpose.REPORT
    cost = hits if hits is not None else question.hits_addend or None
    told = attributes.get
    ip = told("ip") or told("remote_address")
    request = Request(
        told("user"), told("tenant"), told("api_key"), ip, told("tier"), told("method"), told("path"), attributes
    )
    if request.path is not None and is_too_long(request.path):
        # An error would let it pass: Envoy admits what it gets no answer for, unless told otherwise.
        return Asked(request, "", "", cost, purpose)
    if descriptor.limit is None:
        return Asked(request, "", None, cost, purpose)
    key = _encode((question.domain, descriptor.entries)).decode()
    return Asked(request, f"rls:{key}", _written(descriptor.limit), 1 if cost is None else cost, purpose)


def _written(limit: Override) -> str:
    """A limit as people write it."""
    if limit.unit not in _PERIODS:
        msg = f"a limit's unit is one of {', '.join(unit.name for unit in _PERIODS)}, not {shown(limit.unit)}"
        raise InvalidRequest(msg)
    return f"{limit.requests_per_unit}/{_PERIODS[Unit(limit.unit)]}" if limit.requests_per_unit else ""


class RateLimits:
    """Answers Envoy's questions by the limiter's rules."""

    def __init__(self, limiter: Limiter, stated: Callable[[Request], Awaitable[Request]] | None = None) -> None:
        """`stated` adds to a request what is on record about whom it names."""
        self._limiter = limiter
        self._stated = stated

    async def decide(self, asked: tuple[Asked, ...]) -> Answer:
        """The answer; `StoreError` where there is no decision, so that what the operator wants for that happens."""
        return answer_to(*await self.decided(asked))

    async def decided(self, asked: tuple[Asked, ...]) -> Together:
        """The verdict on the whole, and one for each descriptor."""
        if not _is_usual(asked):
            return await together.decide(self._limiter, [await self._part(each) for each in asked])
        request, cost = asked[0].request, asked[0].cost
        if self._stated is not None:
            request = await self._stated(request)
        made = await self._limiter.check(request, cost)
        return Together(made, (made,))

    def decide_now(self, asked: tuple[Asked, ...]) -> Verdict | None:
        """The verdict on what is asked most, where it takes no waiting; None: see `decided`."""
        check_now = self._limiter.check_now
        if check_now is None or self._stated is not None or not _is_usual(asked):
            return None
        return check_now(asked[0].request, asked[0].cost)

    async def _part(self, asked: Asked) -> Part:
        if asked.limit is None:
            request = asked.request if self._stated is None else await self._stated(asked.request)
            return Part(self._limiter.plan(request, asked.cost), asked.purpose, request, asked.cost)
        if not asked.limit:
            return Part(_NOTHING_PASSES, asked.purpose)
        hit = self._limiter.bare_keys.hit(asked.key, asked.limit, asked.cost or 0, Algorithm.FIXED_WINDOW)
        return Part(bare_plan(hit), asked.purpose)


def _is_usual(asked: tuple[Asked, ...]) -> bool:
    """Whether it is one descriptor, which is to be counted by the rules."""
    return len(asked) == 1 and asked[0].purpose is _TAKE and asked[0].limit is None


def answer_to(whole: Verdict, parts: Sequence[Verdict]) -> Answer:
    """What Envoy is told; `StoreError` where nothing was decided."""
    allowed = whole.allowed
    if allowed:
        for decision in whole.decisions:
            if decision.source is Source.DEGRADED_ALLOW:
                # The rule would let it pass. So does Envoy, unless its operator says failure_mode_deny.
                msg = "the counters are out of reach"
                raise StoreError(msg, transient=True)
    statuses = [_status(verdict) for verdict in parts]
    headers = [*whole.headers().items()]
    if allowed:
        return Answer(Code.OK, statuses, headers, delay=whole.delay)
    return Answer(Code.OVER_LIMIT, statuses, [_CONTENT_TYPE, *headers], _encode(whole.problem()) + b"\n")


def refusal_of_overload(overloaded: Overloaded, descriptors: int) -> Answer:
    """The refusal of a call that was not decided, because too many are in flight."""
    headers = [("retry-after", str(max(1, ceil(overloaded.retry_after))))]
    return Answer(Code.OVER_LIMIT, [Status(Code.OVER_LIMIT)] * descriptors, headers)


def _status(verdict: Verdict) -> Status:
    code = Code.OK if verdict.allowed else Code.OVER_LIMIT
    binding = verdict.binding
    if binding is None:
        return Status(code)
    decision = binding.decision
    limit = current_limit(binding.policy, binding.hit.meter)
    return Status(code, limit, min(decision.remaining, LARGEST), decision.reset_after)


def current_limit(policy: str, meter: Meter) -> CurrentLimit:
    """A limit as Envoy is told of it."""
    return CurrentLimit(policy, min(meter.amount, LARGEST), _UNITS.get(meter.window, Unit.UNKNOWN))
