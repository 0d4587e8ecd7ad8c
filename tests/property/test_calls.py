"""Whatever bytes a caller sends, they are the same call or none: paths, headers and addresses as they come in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.applications import hello, scope_of, sent

from headgate.asgi import RateLimitMiddleware
from headgate.core.path import normalise_path
from headgate.edge.frameworks.calls import call_of_asgi, call_of_wsgi, decoded_path, path_of
from headgate.edge.problems import HttpProblem

if TYPE_CHECKING:
    from headgate import Request

segments = st.text(
    st.characters(exclude_characters="/\\", exclude_categories=["Cc"], codec="utf-8"), min_size=1, max_size=8
).filter(lambda text: text not in {".", ".."})
paths = st.lists(segments, min_size=1, max_size=4)
headers = st.lists(
    st.tuples(
        st.sampled_from(["x-forwarded-for", "forwarded", "x-real-ip", "authorization", "x-api-key", "cookie"]),
        st.text(st.characters(max_codepoint=255), max_size=40)
        | st.sampled_from(["1.2.3.4", "for=1.2.3.4", "Bearer a.b.c", 'for="[::1]";by=x', "1.2.3.4, 5.6.7.8"]),
    ),
    max_size=6,
)


@given(paths, st.integers(1, 3), st.booleans())
def test_every_spelling_of_a_path_is_one_path(parts: list[str], slashes: int, trailing: bool) -> None:  # noqa: FBT001 (drawn)
    """Slashes more or less make no other path, and nothing in a segment can end it or begin another."""
    plain = path_of("/" + "/".join(parts))
    spelled = path_of("/" * slashes + ("/" * slashes).join(parts) + "/" * trailing)
    assert normalise_path(plain) == normalise_path(spelled)
    assert normalise_path(plain).count("/") == len(parts)


@given(paths, st.sampled_from([".", ".."]), st.integers(0, 4), st.sampled_from(["/", "\\"]))
def test_dot_segments_never_reach_a_rule(parts: list[str], dots: str, place: int, slash: str) -> None:
    """Wherever a dot segment stands, the call is refused."""
    place = min(place, len(parts))
    with pytest.raises(HttpProblem) as refused:
        path_of("/" + slash.join([*parts[:place], dots, *parts[place:]]))
    assert refused.value.status == 400


@given(paths)
def test_servers_of_both_kinds_see_one_path(parts: list[str]) -> None:
    """What an ASGI server and a WSGI server decode from the same bytes is one path."""
    sent_path = quote("/" + "/".join(parts))
    raw = unquote(sent_path, encoding="latin-1")
    assert decoded_path({"PATH_INFO": raw}) == unquote(sent_path)


@given(headers)
def test_servers_of_both_kinds_see_one_caller(lines: list[tuple[str, str]]) -> None:
    """A header in several lines says the same under ASGI, which keeps lines apart, and WSGI, which joins them."""
    joined: dict[str, str] = {}
    for name, value in lines:
        key = f"HTTP_{name.upper().replace('-', '_')}"
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    environ = {"REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.1", **joined}
    scoped = [(name.encode(), value.encode("latin-1")) for name, value in lines]
    one = call_of_asgi("GET", "/", "192.0.2.1", scoped, b"x-api-key")
    other = call_of_wsgi(environ, "/", "x-api-key")
    assert one[:5] == other[:5]


def _asked(lines: list[tuple[str, str]], peer: str | None, *, trusted: list[str]) -> tuple[int, list[Request]]:
    seen: list[Request] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        seen.append(scope["headgate"].request)
        await hello(scope, receive, send)

    gate = RateLimitMiddleware(app, rules=[{"name": "a", "per": ["ip"], "limits": "1/day"}], trusted_proxies=trusted)
    scope = scope_of(peer=peer, headers=lines)
    return asyncio.run(sent(gate, scope))[0]["status"], seen


@given(headers, st.sampled_from(["192.0.2.1", "2001:db8::1", None, "nonsense"]))
def test_spoofed_headers_change_nothing(lines: list[tuple[str, str]], peer: str | None) -> None:
    """From a peer that is no trusted proxy, no header makes another caller, an error or a free pass."""
    status, (request,) = _asked(lines, peer, trusted=["10.0.0.0/8"])
    assert status == 200
    assert request == _asked([], peer, trusted=["10.0.0.0/8"])[1][0]


@given(headers)
def test_trusted_proxies_may_say_anything(lines: list[tuple[str, str]]) -> None:
    """What a trusted proxy passes on may be nonsense, and is still answered, for some address."""
    status, (request,) = _asked(lines, "10.0.0.1", trusted=["10.0.0.0/8"])
    assert status == 200
    assert request.ip
