"""Requests: what a limiter may be told of a call."""

from __future__ import annotations

from http import HTTPMethod
from typing import Any

import pytest

from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.errors import InvalidRequest

TEXTS = ("user", "tenant", "api_key", "ip", "tier", "method", "path", "route")


def test_everything_is_optional() -> None:
    """A request of which nothing is known is a request."""
    assert Request().check() == Request()
    assert Request().attributes is NO_ATTRIBUTES


def test_any_text_will_do() -> None:
    """Identifiers are opaque: empty, endless, with NUL and half surrogate pairs, they are all taken."""
    for text in ("", "u_42", "\x00", "\ud800", "x" * 1_000_000, "{}|%"):
        request = Request(**dict.fromkeys(TEXTS, text), attributes={text: text})  # type: ignore[arg-type] # no cost
        assert request.check() is request


def test_what_counts_as_text_is_text() -> None:
    """Python's own names of methods, and other texts with a type of their own, are taken."""
    request = Request(method=HTTPMethod.GET, user="u_42")
    assert request.check() is request


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [5, 1.5, True, b"u_42", ["u_42"], {}], ids=repr)
def test_what_is_not_text_is_refused_by_name(name: str, value: Any) -> None:  # noqa: ANN401 (anything but text)
    """A part of a request that is not text is refused with its name."""
    with pytest.raises(InvalidRequest, match=f"^{name} is text, not "):
        Request(**{name: value}).check()


@pytest.mark.parametrize(
    "attributes", [None, 5, "region=eu", ["region"], {"region": 5}, {"region": None}, {5: "eu"}, {b"a": "b"}], ids=repr
)
def test_attributes_map_names_to_texts(attributes: Any) -> None:  # noqa: ANN401 (anything but attributes)
    """Attributes that are no mapping of texts are refused."""
    with pytest.raises(InvalidRequest, match=r"^attributes map names to texts; .* does not$"):
        Request(attributes=attributes).check()


def test_a_huge_value_makes_a_short_message() -> None:
    """A megabyte in the wrong place is refused in one short line."""
    with pytest.raises(InvalidRequest) as caught:
        Request(user=b"x" * 1_000_000).check()  # type: ignore[arg-type] # wrong on purpose
    assert len(str(caught.value)) < 120
