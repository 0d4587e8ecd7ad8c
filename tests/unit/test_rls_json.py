"""The JSON form of Envoy's rate-limit service."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.unit.test_http_service import headers_of

from headgate import InvalidRequest, Limiter
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.edge.rls.messages import Descriptor, Override, RateLimitRequest, Unit, read_json
from headgate.protocols.http1.messages import Head

RULES = [{"name": "one", "match": {"attributes": {"domain": "web"}}, "limits": "1/minute", "algorithm": "fixed_window"}]


def test_the_service_answers_as_envoys_own_does() -> None:
    """200 and OK; then 429, OVER_LIMIT and the limit."""

    async def run() -> list[tuple[int, dict[str, str], Any]]:
        service = DecisionService(Limiter.open("memory://", rules=RULES))
        body = b'{"domain":"web","descriptors":[{"entries":[{"key":"a","value":"b"}]}]}'
        answers = []
        for sent in (body, body, b'{"domain":""}'):
            status, headers, answer = await service.answer(HttpRequest(Head("POST", "/json"), sent))
            answers.append((status, headers_of(headers), json.loads(answer)))
        return answers

    (status, _, ok), (refused, headers, over), (wrong, _, _) = asyncio.run(run())
    assert (status, ok["overallCode"]) == (200, "OK")
    assert (refused, headers["content-type"]) == (429, "application/json")
    assert over["overallCode"] == "OVER_LIMIT"
    limit = {"name": "one", "requestsPerUnit": 1, "unit": "MINUTE"}
    assert over["statuses"][0]["currentLimit"] == limit
    assert over["statuses"][0]["durationUntilReset"].endswith("s")
    assert {"key": "x-ratelimit-limit", "value": "1"} in over["responseHeadersToAdd"]
    assert wrong == 400


def test_both_spellings_of_members_and_numbers_are_read() -> None:
    """Names as in the proto file, names as in JSON, numbers as texts, units by name or number, null for none."""
    entry = {"key": "a", "value": "b"}
    snake = {"entries": [entry], "hits_addend": 3, "is_negative_hits": True, "limit": None}
    camel = {"entries": [entry], "hitsAddend": "3", "limit": {"requestsPerUnit": 5, "unit": "WEEK"}}
    read = read_json(json.dumps({"domain": "d", "descriptors": [snake, camel], "hits_addend": "7"}).encode())
    assert read == RateLimitRequest(
        "d",
        (
            Descriptor((("a", "b"),), None, 3, is_negative_hits=True),
            Descriptor((("a", "b"),), Override(5, Unit.WEEK), 3),
        ),
        7,
    )
    assert read_json(b'{"descriptors":[{"limit":{"unit":2}}]}').descriptors[0].limit == Override(0, 2)
    with pytest.raises(InvalidRequest, match=r"a limit's unit is one of SECOND, .*, not 'minute'"):
        read_json(b'{"descriptors":[{"limit":{"unit":"minute"}}]}')
    unknown = read_json(b'{"descriptors":[{"limit":{"unit":"UNKNOWN"}}]}').descriptors[0].limit
    assert unknown is not None
    assert repr(unknown.unit) == "0"


@pytest.mark.parametrize(
    "body",
    [
        b'{"domain":"a","domain":"b"}',
        b'{"hitsAddend":1,"hits_addend":2}',
        b'{"descriptors":[{"entries":[{"key":"user","value":"a","value":"b"}]}]}',
    ],
)
def test_a_member_that_appears_twice_is_refused(body: bytes) -> None:
    """Of two members of one name other programs take the first or the last; both spellings are one name."""
    with pytest.raises(InvalidRequest, match="appears twice"):
        read_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"domain":1}',
        b'{"quota":{}}',
        b'{"hitsAddend":-1}',
        b'{"hitsAddend":4294967296}',
        b'{"descriptors":[{"hitsAddend":-1}]}',
        b'{"descriptors":[{"hitsAddend":18446744073709551616}]}',
        b'{"descriptors":{}}',
        b'{"domain":"\xff"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_question_is_refused(body: bytes) -> None:
    """A body that is not a RateLimitRequest gets a sentence."""
    with pytest.raises(InvalidRequest, match=r"RateLimitRequest|hitsAddend"):
        read_json(body)
