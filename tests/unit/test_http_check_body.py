from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.edge.http.bodies import read_check
from headgate.errors import InvalidRequest

TEXTS = ("user", "tenant", "api_key", "ip", "tier", "method", "path", "route")
# A text as people send it: everything but NUL and surrogates, with quotes and backslashes often enough.
_texts = st.text(
    st.one_of(st.sampled_from('"\\/u{}:,'), st.characters(codec="utf-8", exclude_characters="\0")), max_size=8
)
_members = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(TEXTS, st.none() | _texts),
        "cost": st.none() | st.integers(0, 10**12),
        "attributes": st.none() | st.dictionaries(_texts, _texts, max_size=3),
    },
)


@given(members=_members, ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_a_body_says_what_the_request_is(members: dict[str, object], ascii_only: bool, indent: int | None) -> None:  # noqa: FBT001 (hypothesis calls it)
    """Any members, however their JSON is written, arrive in the request as they are."""
    body = json.dumps(members, ensure_ascii=ascii_only, indent=indent).encode()
    request, cost = read_check(body)
    assert cost == members.get("cost")
    assert dict(request.attributes) == (members.get("attributes") or {})
    assert all(getattr(request, name) == members.get(name) for name in TEXTS)


@given(members=_members, data=st.data())
def test_a_member_that_is_there_twice_is_refused(members: dict[str, object], data: st.DataObject) -> None:
    """A second copy of any member, wherever it stands and whatever it says, is found."""
    pairs = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members.items()]
    name = data.draw(st.sampled_from([*TEXTS, "cost", "attributes"]))
    values = {"cost": ["1", "null"], "attributes": ["{}", "null", '{"a":"b"}']}.get(
        name, ['""', '"x"', '"\\""', "null"]
    )
    copies = 1 if name in members else 2
    for _ in range(copies):
        pairs.insert(data.draw(st.integers(0, len(pairs))), f'"{name}":{data.draw(st.sampled_from(values))}')
    with pytest.raises(InvalidRequest, match=f"'{name}' appears twice"):
        read_check(f"{{{','.join(pairs)}}}".encode())


def test_no_body_is_an_empty_object() -> None:
    """An empty body names no caller."""
    assert read_check(b"") == read_check(b"{}") == (Request(), None)
    assert read_check(b"")[0].attributes is NO_ATTRIBUTES


@given(body=st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Whatever the bytes are, the only error is one with a sentence of one line and bounded length."""
    try:
        read_check(body)
    except InvalidRequest as refused:
        assert 0 < len(str(refused)) < 300  # noqa: PT017 (both ends are right)
        assert "\n" not in str(refused)  # noqa: PT017 (only if it is refused)


def test_the_text_of_an_escape_is_not_the_escape() -> None:
    """A backslash followed by u0000 is a text like any other; the character NUL is refused."""
    assert read_check(rb'{"user":"\\u0000"}')[0].user == r"\u0000"
    with pytest.raises(InvalidRequest, match="path must not contain the character NUL"):
        read_check(rb'{"user":"\\u0000","path":"/\u0000"}')
    with pytest.raises(InvalidRequest, match="attributes must not contain the character NUL"):
        read_check(rb'{"attributes":{"\u0000":"x"}}')


def test_unknown_members_are_shown_at_a_glance() -> None:
    """An enormous unknown name does not come back whole."""
    with pytest.raises(InvalidRequest, match=r"unknown member 'x{10,}") as refused:
        read_check(b'{"%b":1}' % (b"x" * 50_000))
    assert len(str(refused.value)) < 300
