"""EventParser: what is needed of an event to decide it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.errors import InvalidRequest
from headgate.simulate import traffic
from headgate.simulate.traffic import EventParser, LoggedRequest, Skipped

if TYPE_CHECKING:
    from collections.abc import Sequence


def _event(extra: object = None, **changed: Any) -> Sequence[Any]:  # noqa: ANN401 (a column's value)
    values: dict[str, Any] = dict.fromkeys(traffic.COLUMNS) | {"decision": "allowed", "extra": extra} | changed
    return [values[name] for name in traffic.COLUMNS]


def test_an_event_without_anything_extra_is_a_plain_request() -> None:
    """Nothing is made up."""
    call = EventParser().of(5, _event(user="ann", endpoint="/a"))
    assert call.request == Request(user="ann", path="/a")
    assert call.request.attributes is NO_ATTRIBUTES
    assert call.order == (5, "", 0)
    assert LoggedRequest(5, Request()).order == (5, "", 0)


def test_users_and_addresses_that_were_moved_are_taken_back() -> None:
    """What had no place in its column is in the request all the same."""
    call = EventParser().of(5, _event({"user": "x" * 2_000, "ip": "10.0.0.0.1"}))
    assert call.request == Request(user="x" * 2_000, ip="10.0.0.0.1")
    assert EventParser().of(5, _event({"user": "other", "cost": 2}, user="ann")).request == Request(user="ann", cost=2)


def test_limits_of_ones_own_are_read_once_for_all_who_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not remembered for ever."""
    monkeypatch.setattr(traffic, "_MAX_CACHED", 1)
    calls = EventParser()
    first, second, other, again = (
        calls.of(1, _event({"limits": {"user": {"a": [limit]}}})).request.limits
        for limit in ("1/hour", "1/hour", "2/hour", "1/hour")
    )
    assert first is second
    assert other is not first
    assert again is not None
    assert first is not None
    assert again.as_data() == first.as_data()


@pytest.mark.parametrize("extra", [5, "x", {"limits": 5}, {"limits": {"user": 5}}])
def test_what_is_no_event_is_refused_and_counted(extra: object) -> None:
    """The others of a page are read all the same, and the first sentences are kept."""
    with pytest.raises(InvalidRequest):
        EventParser().of(1, _event(extra))
    skipped = Skipped()
    page = EventParser().page([(1, _event()), *[(2, _event(extra))] * 9], skipped)
    assert len(page) == 1
    assert skipped.count == 9
    assert len(skipped.examples) == 5
