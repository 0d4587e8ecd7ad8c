"""From Envoy's call to a verdict, and back.

A descriptor is a request whose attributes are its entries, the domain as `domain`, and the keys of its
entries in their order as `descriptor_keys`. Entries named like a part of a request (`user`, `path`, …)
are that part too, and `remote_address` is `ip`.
"""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headgate.core import problem
from headgate.core.api_key import looks_like_api_key, public_name
from headgate.core.decision import Source
from headgate.core.headers import Reset, until_reset
from headgate.core.matching import Plan
from headgate.core.meter import Algorithm
from headgate.core.request import Request, method_problem
from headgate.core.rule import DESCRIPTOR_KEYS, Action, Response, Rule
from headgate.core.units import DAY, HOUR, MINUTE, SECOND, WEEK
from headgate.core.verdict import bare_plan
from headgate.dataplane import multi_descriptor
from headgate.dataplane.multi_descriptor import CallVerdict, DescriptorPlan, Purpose
from headgate.edge.problems import STORE_UNAVAILABLE
from headgate.edge.rls.malformed import MalformedCalls, malformed_part
from headgate.edge.rls.messages import MAX_UINT32, Code, CurrentLimit, RateLimitResponse, Status, Unit
from headgate.errors import InvalidRequest, StoreError, short_repr

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.core.meter import Meter
    from headgate.core.verdict import Verdict
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.rls.messages import Descriptor, Override, RateLimitRequest
    from headgate.errors import Overloaded

MAX_DESCRIPTORS: Final = 100
"""Of one call. Each is decided and answered, in about twenty microseconds."""
MAX_ENTRIES: Final = 256
"""Of one descriptor."""
_DOMAIN: Final = "domain"
_REPORT: Final = "headgate_report"
_TAKE: Final = Purpose.TAKE  # the lookup takes a tenth of a decision
_PERIODS: Final = {
    Unit.SECOND: "second",
    Unit.MINUTE: "minute",
    Unit.HOUR: "hour",
    Unit.DAY: "day",
    Unit.WEEK: "7 days",
    Unit.MONTH: "30 days",  # as in Envoy's own service
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
_DENY_ALL: Final = Plan(0, (), (), Rule("override", action=Action.BLOCK, response=Response(429)), ())
_MALFORMED: Final = (
    "The path, method, address or size of the request is malformed, so that no rule can be found for it."
)
_DENY_MALFORMED: Final = Plan(0, (), (), Rule("malformed", action=Action.BLOCK, response=Response(429, _MALFORMED)), ())
_CONTENT_TYPE: Final = ("content-type", problem.CONTENT_TYPE)
_encode: Final = msgspec.json.Encoder().encode


class DescriptorCheck(NamedTuple):
    """One descriptor as the limiter sees it: a request, or a key with a limit of its own."""

    request: Request
    key: str
    limit: str | None
    """None: the rules decide. Empty: nothing is admitted."""
    cost: int | None = None
    purpose: Purpose = Purpose.TAKE


UNMATCHABLE: Final = (DescriptorCheck(Request(), "", ""),)
"""A call that no rule can be found for, because of what its caller has sent. It is over the limit: Envoy admits calls
that end in an error, unless configured otherwise, and so an error would be a way round every limit."""


def prepare(call: RateLimitRequest) -> tuple[DescriptorCheck, ...]:
    """The checks of a call, one for each descriptor; `InvalidRequest` if it is malformed."""
    if not call.domain:
        msg = "the domain must not be empty"
        raise InvalidRequest(msg)
    if not call.descriptors:
        msg = "there must be at least one descriptor"
        raise InvalidRequest(msg)
    if len(call.descriptors) > MAX_DESCRIPTORS:
        many = len(call.descriptors)
        msg = f"{many} descriptors are too many for one call, which has at most {MAX_DESCRIPTORS}"
        raise InvalidRequest(msg)
    return tuple([_check_of(call, descriptor) for descriptor in call.descriptors])


def _check_of(call: RateLimitRequest, descriptor: Descriptor) -> DescriptorCheck:
    entries, limit, hits, is_negative = descriptor
    keys = [key for key, _ in entries]
    if not keys or "" in keys:
        msg = "a descriptor has at least one entry, and every entry a key"
        raise InvalidRequest(msg)
    if len(keys) > MAX_ENTRIES:
        msg = f"{len(keys)} entries are too many for one descriptor, which has at most {MAX_ENTRIES}"
        raise InvalidRequest(msg)
    attributes, purpose = dict(entries), _TAKE
    if is_report := _REPORT in attributes:
        del attributes[_REPORT]
        keys = [key for key in keys if key != _REPORT]
    attributes[_DOMAIN] = call.domain
    attributes[DESCRIPTOR_KEYS] = ",".join(keys)
    if is_negative:
        purpose = Purpose.REFUND
    elif hits == 0:
        purpose, hits = Purpose.LOOK, 1
    elif is_report:
        purpose = Purpose.REPORT
    cost = hits if hits is not None else call.hits_addend or None
    get = attributes.get
    ip = get("ip") or get("remote_address")
    method = get("method")
    if method and method_problem(method) and method_problem(method.strip()):
        method = None  # nothing like a method of HTTP, such as the name of a gRPC method: an attribute only
    request = Request(get("user"), get("tenant"), get("api_key"), ip, get("tier"), method, get("path"), attributes)
    if limit is None:
        if malformed_part(request) is not None:
            return UNMATCHABLE[0]._replace(request=request, purpose=purpose)
        return DescriptorCheck(request, "", None, cost, purpose)
    return DescriptorCheck(
        request, _counter(call.domain, entries), _written(limit), 1 if cost is None else cost, purpose
    )


def _counter(domain: str, entries: Sequence[tuple[str, str]]) -> str:
    """The counter of a limit that came with a descriptor, named after the entries.

    No API key may stand there: `RateLimits._own_key` adds what stands for it.
    """
    named = (domain, [(name, None if name == "api_key" else text) for name, text in entries])
    try:
        return f"rls:{_encode(named).decode()}"
    except UnicodeEncodeError:  # some bytes were not UTF-8
        return f"rls:{json.dumps(named)}"


def _written(limit: Override) -> str:
    """A limit in the syntax of rules."""
    if limit.unit not in _PERIODS:
        msg = f"a limit's unit is one of {', '.join(unit.name for unit in _PERIODS)}, not {short_repr(limit.unit)}"
        raise InvalidRequest(msg)
    return f"{limit.requests_per_unit}/{_PERIODS[Unit(limit.unit)]}" if limit.requests_per_unit else ""


class RateLimits:
    """Decides Envoy's calls by the limiter's rules."""

    def __init__(
        self,
        limiter: Limiter,
        identify: Callable[[Request], Awaitable[Request]] | None = None,
        reset: Reset = Reset.NEXT,
        malformed: MalformedCalls | None = None,
        *,
        looks_up_keys_only: bool = False,
    ) -> None:
        """`identify` adds the caller's record to a request; `reset` is what `X-RateLimit-Reset` says.

        `malformed` counts calls that no rule can be found for. `looks_up_keys_only`: `identify` leaves a request as it
        is that has no API key.
        """
        self.reset: Final = reset
        self._limiter = limiter
        self._identify = identify
        self._looks_up_all = identify is not None and not looks_up_keys_only
        self._malformed = malformed or MalformedCalls("grpc")

    async def decide(self, checks: tuple[DescriptorCheck, ...]) -> RateLimitResponse:
        """The response; `StoreError` without a decision, so that Envoy's failure mode applies."""
        return response_of(*await self.decided(checks), self.reset)

    async def decided(self, checks: tuple[DescriptorCheck, ...]) -> CallVerdict:
        """The verdict on the whole, and one for each descriptor."""
        if not _is_simple(checks):
            return await multi_descriptor.decide(self._limiter, [await self._part(each) for each in checks])
        request, cost = checks[0].request, checks[0].cost
        if self._identify is not None and (self._looks_up_all or request.api_key):
            request = await self._identify(request)
        made = await self._limiter.check(request, cost)
        return CallVerdict(made, (made,))

    def decide_now(self, checks: tuple[DescriptorCheck, ...]) -> Verdict | None:
        """The fast path of `decided`: the verdict on a simple check, if the store needs no waiting; else None."""
        if self._looks_up_all or not _is_simple(checks) or (self._identify is not None and checks[0].request.api_key):
            return None
        return (self._limiter.check_now or self._limiter.check_held)(checks[0].request, checks[0].cost)

    async def _part(self, check: DescriptorCheck) -> DescriptorPlan:
        if check.limit is None:
            request = check.request
            if self._identify is not None and (self._looks_up_all or request.api_key):
                request = await self._identify(request)
            return DescriptorPlan(self._limiter.plan(request, check.cost), check.purpose, request, check.cost)
        if not check.limit:
            if check.key:
                return DescriptorPlan(_DENY_ALL, check.purpose)
            self._malformed.count(malformed_part(check.request) or "size")
            return DescriptorPlan(_DENY_MALFORMED, check.purpose)
        key = await self._own_key(check)
        hit = self._limiter.bare_keys.hit(key, check.limit, check.cost or 0, Algorithm.FIXED_WINDOW)
        return DescriptorPlan(bare_plan(hit), check.purpose)

    async def _own_key(self, check: DescriptorCheck) -> str:
        """The counter of a limit that came with the descriptor. API keys that do not count share one.

        A key whose record cannot be read is not one of these: in an outage valid keys would be denied together.
        """
        if not check.request.api_key:
            return check.key
        request = check.request if self._identify is None else await self._identify(check.request)
        key = request.api_key
        if not key and request.assumed and looks_like_api_key(check.request.api_key):
            key = check.request.api_key
        name = key and public_name(key)
        return f"{check.key} {name}" if name else check.key


def _is_simple(checks: tuple[DescriptorCheck, ...]) -> bool:
    """Whether it is one descriptor that the rules count."""
    return len(checks) == 1 and checks[0].purpose is _TAKE and checks[0].limit is None


def response_of(whole: Verdict, parts: Sequence[Verdict], reset: Reset = Reset.NEXT) -> RateLimitResponse:
    """The response for Envoy; `StoreError` if nothing was decided."""
    allowed = whole.allowed
    if allowed:
        for decision in whole.decisions:
            if decision.source is Source.DEGRADED_ALLOW:
                # The rule would admit it. So does Envoy, unless its operator sets failure_mode_deny.
                raise StoreError(STORE_UNAVAILABLE, transient=True)
    statuses = [_status(verdict, reset) for verdict in parts]
    headers = [*whole.headers(reset).items()]
    if allowed:
        return RateLimitResponse(Code.OK, statuses, headers, delay=whole.delay)
    return RateLimitResponse(Code.OVER_LIMIT, statuses, [_CONTENT_TYPE, *headers], _encode(whole.problem()) + b"\n")


def overload_response(overloaded: Overloaded, descriptors: int) -> RateLimitResponse:
    """The denial of a call that was not decided, because too many are in flight."""
    headers = [("retry-after", str(max(1, ceil(overloaded.retry_after))))]
    return RateLimitResponse(Code.OVER_LIMIT, [Status(Code.OVER_LIMIT)] * descriptors, headers)


def _status(verdict: Verdict, reset: Reset) -> Status:
    code = Code.OK if verdict.allowed else Code.OVER_LIMIT
    binding = verdict.binding
    if binding is None:
        return Status(code)
    decision = binding.decision
    limit = current_limit(binding.policy, binding.hit.meter)
    return Status(code, limit, min(decision.remaining, MAX_UINT32), until_reset(verdict, binding, reset))


def current_limit(policy: str, meter: Meter) -> CurrentLimit:
    """A limit as Envoy's messages have it."""
    return CurrentLimit(policy, min(meter.amount, MAX_UINT32), _UNITS.get(meter.window, Unit.UNKNOWN))
