from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.path import path_problem
from headgate.core.request import Request, method_problem
from headgate.errors import InvalidRequest
from headgate.sync import Limiter
from headgate.testing import FakeClock

FIELDS = ("user", "tenant", "api_key", "ip", "tier", "method", "path", "route")
RULES: list[dict[str, Any]] = [
    {"name": "all", "limits": "100/minute"},
    {
        "name": "r",
        "per": ["user", "tenant", "api_key", "ip", "endpoint", "method", "attribute:x"],
        "match": {"attributes": {"y": "1"}, "ip_ranges": ["0.0.0.0/0"]},
        "limits": "100/minute",
    },
]


@pytest.fixture
def gate() -> Limiter:
    return Limiter.open(rules=RULES, clock=FakeClock())


@pytest.mark.parametrize(
    "value", [0, 5, False, True, b"", b"x", [], ["x"], {}, 1.5, pytest.param(object(), id="object()")], ids=repr
)
@pytest.mark.parametrize("field", FIELDS)
def test_every_part_of_a_request_is_text(gate: Limiter, field: str, value: object) -> None:
    """A part of a request that is no text, even an empty one, is refused with a sentence that names it."""
    request: Request = Request(**{field: value})  # type: ignore[arg-type] # wrong on purpose
    for ask in (gate.check, gate.peek, gate.reset):
        with pytest.raises(InvalidRequest, match=f"^{field} is text, not "):
            ask(request)


@pytest.mark.parametrize(
    "attributes", [None, 5, "x=1", [("x", "1")], {"x": 1}, {"x": None}, {1: "x"}, {"x": ["1"]}], ids=repr
)
def test_attributes_map_names_to_texts(gate: Limiter, attributes: Any) -> None:  # noqa: ANN401 (anything)
    """Attributes that are no mapping of names to texts are refused with a sentence."""
    with pytest.raises(InvalidRequest, match=r"^attributes map names to texts; "):
        gate.check(Request(attributes=attributes))


@pytest.mark.parametrize("thing", [None, {}, {"user": "u"}, ("u",), "u", 5, Request], ids=repr)
def test_a_request_is_a_request(gate: Limiter, thing: Any) -> None:  # noqa: ANN401 (anything)
    """A dictionary, or anything else in place of a request, is refused with a sentence."""
    with pytest.raises(InvalidRequest, match=r"^expected a headgate\.Request, not "):
        gate.check(thing)
    with pytest.raises(InvalidRequest, match=r"^expected a headgate\.Request, not "):
        gate.check_many([thing])


def test_peek_and_reset_say_what_they_need(gate: Limiter) -> None:
    """A key goes with a limit and a request without; everything else is refused with a sentence."""
    for ask in (gate.peek, gate.reset):
        with pytest.raises(InvalidRequest, match=r"^a key needs a limit"):
            ask("k")
        with pytest.raises(InvalidRequest, match=r"^a limit goes with a key"):
            ask(Request(), "5/minute")
        with pytest.raises(InvalidRequest, match=r"^expected a headgate\.Request, not \{'user': 'u'\}"):
            ask({"user": "u"})  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize("cost", [-1, 10**12 + 1, 1.0, True, "1", float("inf"), [1]], ids=repr)
def test_a_cost_is_a_whole_number(gate: Limiter, cost: Any) -> None:  # noqa: ANN401 (anything)
    """A cost that is negative, huge or not whole is refused with a sentence, and nothing is counted."""
    for ask in (gate.check, gate.peek):
        with pytest.raises(InvalidRequest, match=r"^a cost is "):
            ask(Request(), cost=cost)
    with pytest.raises(InvalidRequest, match=r"^a cost is "):
        gate.check_many([Request()], cost=cost)
    assert gate.peek(Request(), cost=0).remaining == 100


def test_text_of_a_kind_of_its_own_is_text(gate: Limiter) -> None:
    """A subclass of str, as frameworks have for escaped text, is text like any other."""

    class Markup(str):
        __slots__ = ()

    assert gate.check(Request(user=Markup("u"), attributes={"y": "1"}, ip="192.0.2.1")).remaining == 99


@settings(deadline=None)
@given(*(st.none() | st.text() for _ in range(7)), st.dictionaries(st.text(), st.text(), max_size=3))
def test_every_text_has_a_meaning(
    user: str | None,
    tenant: str | None,
    api_key: str | None,
    tier: str | None,
    method: str | None,
    path: str | None,
    route: str | None,
    attributes: dict[str, str],
) -> None:
    """Whatever texts a request is made of, with NUL bytes and lone surrogates, it is decided.

    Only its method must be a token, and its path without control characters; else it is refused and not counted.
    """
    limiter = Limiter.open(rules=RULES, clock=FakeClock())
    request = Request(user, tenant, api_key, "192.0.2.1", tier, method, path, {**attributes, "y": "1"}, route)
    if method_problem(method or "") or path_problem(path or "/"):
        with pytest.raises(InvalidRequest, match=r"is not a token|has a control character"):
            limiter.check(request)
        request = request._replace(method="GET", path="/")
    verdict = limiter.check(request)
    assert verdict.remaining == 99
    assert len(verdict.decisions) == 2
    assert all(receipt.key.isascii() and receipt.key.isprintable() for receipt in verdict.receipts)


def test_enormous_texts_make_short_keys(gate: Limiter) -> None:
    """An identifier of a megabyte is counted under a key of bounded length, and two of them apart."""
    requests = [Request(user=letter * 1_000_000, ip="192.0.2.1", attributes={"y": "1"}) for letter in "ab"]
    keys = {receipt.key for request in requests for receipt in gate.check(request).receipts}
    assert len(keys) == 3
    assert max(map(len, keys)) < 1_000


def test_long_values_are_not_repeated_in_messages(gate: Limiter) -> None:
    """The sentence about a value of the wrong type stays short, however long the value is."""
    with pytest.raises(InvalidRequest) as raised:
        gate.check(Request(user=["x"] * 100_000))  # type: ignore[arg-type] # wrong on purpose
    assert len(str(raised.value)) < 200
