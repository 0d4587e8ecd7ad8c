"""Envoy's questions and their answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate import InvalidRequest, Limiter, StoreError
from headgate.core import degraded
from headgate.core.api_key import RANDOM_BYTES, new_api_key
from headgate.core.metrics import Sample
from headgate.dataplane.limiter import run_now
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.edge.rls.decisions import UNMATCHABLE, DescriptorCheck, RateLimits, prepare
from headgate.edge.rls.malformed import MalformedCalls
from headgate.edge.rls.messages import (
    Code,
    CurrentLimit,
    Descriptor,
    Override,
    RateLimitRequest,
    RateLimitResponse,
    Unit,
)
from headgate.protocols.http1.messages import Head

if TYPE_CHECKING:
    from headgate import Request

PARTS = (("path", 1), ("address", 2))
RULES: list[dict[str, Any]] = [
    {
        "name": "search",
        "match": {"attributes": {"domain": "web", "path": "/search"}},
        "per": ["ip"],
        "limits": "2/minute",
        "algorithm": "fixed_window",
    },
    {
        "name": "tokens",
        "match": {"attributes": {"domain": "llm"}},
        "per": ["attribute:model"],
        "limits": "10000000000/day",
        "algorithm": "fixed_window",
    },
    {"name": "watched", "match": {"attributes": {"domain": "shadow"}}, "limits": "1/hour", "action": "log"},
    {"name": "shut", "match": {"attributes": {"generic_key": "shut"}}, "action": "block"},
]


class Envoy:
    def __init__(self, rules: list[dict[str, Any]] = RULES) -> None:
        self.limiter = Limiter.open("memory://", rules=rules)
        self.service = RateLimits(self.limiter)

    def ask(self, domain: str, *descriptors: Descriptor, hits: int = 0) -> RateLimitResponse:
        return asyncio.run(self.service.decide(prepare(RateLimitRequest(domain, descriptors, hits))))


def described(
    hits: int | None = None, limit: Override | None = None, *, back: bool = False, **entries: str
) -> Descriptor:
    return Descriptor(tuple(entries.items()), limit, hits, back)


SEARCH = described(path="/search", remote_address="203.0.113.9")


def test_descriptors_match_rules_as_attributes() -> None:
    """Two of two a minute pass; the third is over the limit, with headers and a body for the caller."""
    envoy = Envoy()
    assert [envoy.ask("web", SEARCH).overall_code for _ in range(2)] == [Code.OK] * 2
    answer = envoy.ask("web", SEARCH)
    assert answer.overall_code is Code.OVER_LIMIT
    (status,) = answer.statuses
    assert status.current_limit == CurrentLimit("search", 2, Unit.MINUTE)
    assert (status.code, status.limit_remaining) == (Code.OVER_LIMIT, 0)
    assert 0 < status.until_reset <= 60_000_000
    headers = {name.lower(): value for name, value in answer.response_headers_to_add}
    assert headers["content-type"] == "application/problem+json"
    assert int(headers["retry-after"]) > 0
    assert json.loads(answer.raw_body)["violated-policies"] == ["search"]


def test_domains_are_apart() -> None:
    """The same descriptor in another domain is another matter: nothing limits it there, and its status says so."""
    answer = Envoy().ask("other", SEARCH)
    assert (answer.overall_code, answer.statuses[0].current_limit) == (Code.OK, None)


def test_each_descriptor_has_a_status() -> None:
    """Statuses come in the order of the descriptors, and one that is over the limit is enough."""
    envoy = Envoy()
    other = described(path="/search", remote_address="203.0.113.10")
    envoy.ask("web", SEARCH, hits=2)
    answer = envoy.ask("web", other, SEARCH, described(x="y"))
    assert [status.code for status in answer.statuses] == [Code.OK, Code.OVER_LIMIT, Code.OK]
    assert answer.overall_code is Code.OVER_LIMIT
    assert envoy.ask("web", other, hits=2).overall_code is Code.OK  # it was not counted


def test_a_descriptors_own_hits_replace_the_requests() -> None:
    """Hits of a descriptor count for it alone; an explicit 0 looks and counts nothing."""
    envoy = Envoy()
    own = described(2, path="/search", remote_address="203.0.113.9")
    probe = own._replace(hits_addend=0)
    assert envoy.ask("web", probe).overall_code is Code.OK
    assert envoy.ask("web", own, hits=1000).overall_code is Code.OK
    assert envoy.ask("web", probe).overall_code is Code.OVER_LIMIT


def test_negative_hits_are_a_refund() -> None:
    """A refund is always OK, and what it gave back can be taken again."""
    envoy = Envoy()
    assert envoy.ask("web", SEARCH, hits=2).overall_code is Code.OK
    answer = envoy.ask("web", SEARCH._replace(hits_addend=1, is_negative_hits=True))
    assert (answer.overall_code, answer.statuses[0].limit_remaining) == (Code.OK, 1)
    assert envoy.ask("web", SEARCH).overall_code is Code.OK
    assert envoy.ask("web", SEARCH).overall_code is Code.OVER_LIMIT


def test_what_was_used_already_can_be_reported() -> None:
    """With an entry headgate_report the hits count past the limit, as tokens do that a model has answered with."""
    envoy = Envoy()
    report = described(5, path="/search", remote_address="203.0.113.9", headgate_report="1")
    assert envoy.ask("web", report).overall_code is Code.OK
    assert envoy.ask("web", SEARCH._replace(hits_addend=0)).overall_code is Code.OVER_LIMIT


def test_large_numbers_are_cut_to_what_the_message_can_hold() -> None:
    """A limit above 32 bits is said to be the largest number there is."""
    (status,) = Envoy().ask("llm", described(model="m")).statuses
    assert status.current_limit == CurrentLimit("tokens", 2**32 - 1, Unit.DAY)
    assert status.limit_remaining == 2**32 - 1


def test_a_limit_can_come_with_the_descriptor() -> None:
    """It stands in place of the rules, on a counter for exactly these entries."""
    envoy = Envoy()
    own = described(limit=Override(1, Unit.HOUR), path="/search")
    assert [envoy.ask("web", own).overall_code for _ in range(2)] == [Code.OK, Code.OVER_LIMIT]
    assert envoy.ask("web2", own).overall_code is Code.OK
    assert envoy.ask("web", own._replace(limit=Override(0, Unit.HOUR))).overall_code is Code.OVER_LIMIT


def test_no_api_key_names_a_counter() -> None:
    """The counter of a descriptor with its own limit is named after a digest; malformed keys share one."""
    own = [
        described(limit=Override(1, Unit.HOUR), api_key=text) for text in ("sk_live_1", "sk_live_1 ", "hg_1", "hg_2")
    ]
    assert all("live_1" not in prepare(RateLimitRequest("web", (each,), 0))[0].key for each in own)
    envoy = Envoy()
    codes = [envoy.ask("web", each).overall_code for each in own]
    assert codes == [Code.OK, Code.OVER_LIMIT, Code.OK, Code.OVER_LIMIT]


def test_keys_whose_records_cannot_be_read_have_counters_of_their_own() -> None:
    """In an outage valid keys are not denied together. What cannot be a key of ours shares a counter even then."""

    async def stated(request: Request) -> Request:
        return request._replace(api_key=None, assumed=True)

    envoy = Envoy()
    envoy.service = RateLimits(envoy.limiter, stated)
    keys = [new_api_key(bytes((number,)) * RANDOM_BYTES) for number in range(2)]
    asked = [described(limit=Override(1, Unit.HOUR), api_key=key) for key in (*keys, keys[0], "hg_1", "sk_1")]
    codes = [envoy.ask("web", each).overall_code for each in asked]
    assert codes == [Code.OK, Code.OK, Code.OVER_LIMIT, Code.OK, Code.OVER_LIMIT]


def test_watched_rules_let_everything_pass() -> None:
    """A rule with the action log answers OK however often it is asked."""
    envoy = Envoy()
    assert {envoy.ask("shadow", described(a="b")).overall_code for _ in range(3)} == {Code.OK}


def test_a_block_is_over_the_limit() -> None:
    """A rule that blocks answers OVER_LIMIT, without a limit; of two entries with one key the last counts."""
    answer = Envoy().ask("web", Descriptor((("generic_key", "a"), ("generic_key", "shut"))))
    assert (answer.overall_code, answer.statuses[0].current_limit) == (Code.OVER_LIMIT, None)


@pytest.mark.parametrize(
    "question",
    [
        RateLimitRequest("", (SEARCH,)),
        RateLimitRequest("web", ()),
        RateLimitRequest("web", (Descriptor(()),)),
        RateLimitRequest("web", (Descriptor((("", "x"),)),)),
        RateLimitRequest("web", (described(limit=Override(1, 0), a="b"),)),
        RateLimitRequest("web", (described(2**63, path="/search", remote_address="::1"),)),
    ],
)
def test_unsound_questions_are_refused(question: RateLimitRequest) -> None:
    """What makes no sense is an error, not an answer."""
    with pytest.raises(InvalidRequest):
        asyncio.run(Envoy().service.decide(prepare(question)))


@pytest.mark.parametrize(
    "entries",
    [{"ip": "not an address"}, {"remote_address": "::1::"}, {"ip": "::g", "remote_address": "::1"}, {"path": "/a%00"}],
)
def test_what_a_caller_can_put_into_an_entry_is_no_error(entries: dict[str, str]) -> None:
    """Envoy admits calls that end in an error: what no rule can be found for is over the limit, and says why."""
    answer = Envoy().ask("web", Descriptor((*entries.items(),)))
    assert (answer.overall_code, answer.statuses[0].code) == (Code.OVER_LIMIT, Code.OVER_LIMIT)
    problem = json.loads(answer.raw_body)
    assert problem["detail"].startswith("The path, method, address or size of the request is malformed")
    assert problem["message"] == problem["detail"]


@pytest.mark.parametrize(
    ("part", "checks"),
    [
        ("path", prepare(RateLimitRequest("web", (described(path="/a%00"),)))),
        ("method", prepare(RateLimitRequest("web", (described(method="GET "),)))),
        ("address", prepare(RateLimitRequest("web", (described(remote_address="fe80::g"),)))),
        ("size", UNMATCHABLE),
    ],
)
def test_a_line_says_why_no_rule_can_be_found(
    part: str, checks: tuple[DescriptorCheck, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """One for many calls, without what the caller sent."""
    service = Envoy().service
    assert {asyncio.run(service.decide(checks)).overall_code for _ in range(3)} == {Code.OVER_LIMIT}
    expected = f"calls of Envoy denied because of a malformed {part}: 1 since the last such line"
    assert [record.getMessage() for record in caplog.records] == [expected]


def test_malformed_calls_are_counted() -> None:
    """Each port counts its own, by what is malformed; they are in no other count."""
    malformed = MalformedCalls("grpc")
    envoy = Envoy()
    envoy.service = RateLimits(envoy.limiter, malformed=malformed)
    envoy.ask("web", described(path="/a%00"), described(ip="nowhere"))
    envoy.ask("web", described(ip="nowhere"))
    counted = [Sample("headgate_malformed_calls_total", times, ("grpc", part)) for part, times in PARTS]
    assert list(malformed.samples()) == counted
    service = DecisionService(envoy.limiter)
    body = b'{"domain":"web","descriptors":[{"entries":[{"key":"ip","value":"nowhere"}]}]}'
    run_now(service.answer(HttpRequest(Head("POST", "/json"), body)))
    assert Sample("headgate_malformed_calls_total", 1, ("http", "address")) in service.samples()


def test_a_limit_in_a_descriptor_needs_no_address() -> None:
    """Its counter is named after the entries: whatever stands in them, it counts."""
    for entries in ({"ip": "203.0.113.7, 10.0.0.1"}, {"ip": "203.0.113.7:443"}, {"path": "/a%00"}, {"method": "GET "}):
        envoy = Envoy()
        own = Descriptor((*entries.items(),), Override(1, Unit.HOUR))
        assert [envoy.ask("web", own).overall_code for _ in range(2)] == [Code.OK, Code.OVER_LIMIT]


def test_bytes_that_are_not_utf8_are_counted() -> None:
    """By rules and by limits in descriptors; different bytes have different counters."""
    envoy = Envoy([{"name": "one", "per": ["user"], "limits": "1/day"}])
    first, second = (part.decode("utf-8", "surrogateescape") for part in (b"\xff", b"\xfe"))
    for own in (None, Override(1, Unit.DAY)):
        asked = [envoy.ask("web", described(limit=own, user=user)).overall_code for user in (first, first, second)]
        assert asked == [Code.OK, Code.OVER_LIMIT, Code.OK]


def test_an_entry_called_domain_does_not_replace_the_domain() -> None:
    """Rules of one domain are not met with an entry from another."""
    codes = [Envoy().ask("other", described(domain="llm", model="m"), hits=10**10 + 1).overall_code for _ in range(2)]
    assert codes == [Code.OK, Code.OK]


def test_without_a_decision_there_is_no_answer() -> None:
    """Where a rule would let calls pass uncounted, Envoy is told that there is no answer, so that its mode holds."""

    async def run() -> None:
        envoy = Envoy()

        async def away(hits: Any) -> Any:  # noqa: ANN401 (a store)
            return [degraded.without_counting(hit, 1) for hit in hits]

        envoy.limiter._take_now = None
        envoy.limiter.store.take = away  # type: ignore[method-assign] # an unavailable store
        with pytest.raises(StoreError):
            await envoy.service.decide(prepare(RateLimitRequest("web", (SEARCH,))))

    asyncio.run(run())


def test_what_is_on_record_counts() -> None:
    """Whom a descriptor names is looked up like a stated user."""
    rules = [{"name": "gold", "match": {"tiers": ["gold"]}, "per": ["user"], "limits": "1/hour"}]

    async def stated(request: Request) -> Request:
        return request._replace(tier="gold" if request.user == "u1" else None)

    async def run() -> list[Code]:
        service = RateLimits(Limiter.open("memory://", rules=rules), stated)
        asked = [RateLimitRequest("web", (described(user=user),)) for user in ("u1", "u1", "u2")]
        return [(await service.decide(prepare(question))).overall_code for question in asked]

    assert asyncio.run(run()) == [Code.OK, Code.OVER_LIMIT, Code.OK]


def test_what_is_asked_most_is_decided_at_once() -> None:
    """One descriptor to count by the rules takes no waiting, where the counters are here; everything else may."""
    envoy = Envoy([RULES[0] | {"limits": "2/day", "algorithm": "sliding_window_counter"}])
    verdict = envoy.service.decide_now(prepare(RateLimitRequest("web", (SEARCH,))))
    assert verdict is not None
    assert (verdict.allowed, verdict.remaining) == (True, 1)
    others = [
        (SEARCH, SEARCH),
        (SEARCH._replace(hits_addend=0),),
        (SEARCH._replace(is_negative_hits=True),),
        (SEARCH._replace(limit=Override(1, Unit.HOUR)),),
    ]
    for descriptors in others:
        assert envoy.service.decide_now(prepare(RateLimitRequest("web", descriptors))) is None
    assert envoy.ask("web", SEARCH).statuses[0].limit_remaining == 0

    async def stated(request: Request) -> Request:
        return request

    looked_up = RateLimits(envoy.limiter, stated)
    assert looked_up.decide_now(prepare(RateLimitRequest("web", (SEARCH,)))) is None
    answer = asyncio.run(looked_up.decide(prepare(RateLimitRequest("web", (SEARCH,)))))
    assert answer.overall_code is Code.OVER_LIMIT
    keys_only = RateLimits(envoy.limiter, stated, looks_up_keys_only=True)
    assert keys_only.decide_now(prepare(RateLimitRequest("web", (SEARCH,)))) is not None
    with_key = SEARCH._replace(entries=(*SEARCH.entries, ("api_key", "sk_1")))
    assert keys_only.decide_now(prepare(RateLimitRequest("web", (with_key,)))) is None


@pytest.mark.parametrize(
    ("method", "code"),
    [("GET", Code.OK), ("/helloworld.Greeter/SayHello", Code.OK), ("list items", Code.OK), (" GET", Code.OVER_LIMIT)],
)
def test_an_entry_called_method_need_not_be_one_of_http(method: str, code: Code) -> None:
    """The name of a gRPC method is an attribute only; a method with blanks around it would pass by rules for it."""
    request = RateLimitRequest("web", (Descriptor((("method", method),)),))
    answer = asyncio.run(RateLimits(Limiter.open(rules=[])).decide(prepare(request)))
    assert answer.overall_code is code
