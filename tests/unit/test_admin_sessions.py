"""Sessions of the dashboard: bounded, ending, and of no use to another site."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headgate.edge.admin import sessions
from headgate.edge.admin.sessions import (
    IDLE_SECONDS,
    MAX_OF_ONE_TOKEN,
    MAX_SECONDS,
    MAX_SESSIONS,
    Sessions,
    cookie_line,
    cookie_of,
    credential,
    refuse_other_sites,
)
from headgate.edge.problems import HttpProblem

MARK = (b"headgate-dashboard", b"1")


def _scope(*headers: tuple[bytes, bytes], scheme: str = "http") -> dict[str, Any]:
    return {"type": "http", "scheme": scheme, "headers": [(b"host", b"gate:8081"), *headers]}


class Clock:
    """Seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now


def test_a_session_ends_by_itself() -> None:
    """After two hours without use, and after twelve hours in any case."""
    clock = Clock()
    table = Sessions(clock)
    cookie = table.begin("token")
    clock.now = IDLE_SECONDS - 1
    assert table.token(cookie) == "token"
    clock.now += IDLE_SECONDS
    assert table.token(cookie) is None
    cookie, begun = table.begin("token"), clock.now
    while clock.now < begun + MAX_SECONDS:
        assert table.token(cookie) == "token"
        clock.now += IDLE_SECONDS / 2
    assert table.token(cookie) is None
    assert len(table) == 0


def test_signing_out_ends_a_session() -> None:
    """And only that one; a cookie that was never given out is no session."""
    table = Sessions(Clock())
    one, other = table.begin("a"), table.begin("b")
    table.end(one)
    assert (table.token(one), table.token(other), table.token("guess")) == (None, "b", None)


def test_the_table_is_bounded() -> None:
    """The session that was used least recently ends first; one token cannot push out the sessions of others."""
    table = Sessions(Clock())
    first = table.begin("first")
    for _ in range(MAX_OF_ONE_TOKEN * 3):
        table.begin("greedy")
    assert len(table) == MAX_OF_ONE_TOKEN + 1
    assert table.token(first) == "first"
    for number in range(MAX_SESSIONS - len(table)):
        table.begin(f"token-{number}")
    assert len(table) == MAX_SESSIONS
    table.begin("one more")
    assert len(table) == MAX_SESSIONS
    assert table.token(first) == "first"


def test_cookies_are_random_and_not_kept() -> None:
    """No two are alike, and what is in memory is a hash of each."""
    table = Sessions(Clock())
    cookies = {table.begin(str(number)) for number in range(100)}
    assert len(cookies) == 100
    assert all(len(cookie) >= 43 for cookie in cookies)
    assert not any(cookie in repr(vars(table)) for cookie in cookies)


def test_the_header_wins_over_the_cookie() -> None:
    """A program that sends a token is judged by it, whatever cookies it sends."""
    table = Sessions(Clock())
    cookie = table.begin("of the session").encode()
    bearer = (b"authorization", b"Bearer other")
    assert credential(_scope(bearer, (b"cookie", b"headgate_session=" + cookie)), lambda: table) == "other"
    assert credential(_scope((b"cookie", b"a=b; headgate_session=" + cookie), MARK), lambda: table) == "of the session"
    for headers in ((), ((b"cookie", b"headgate_session=guess"), MARK), ((b"cookie", b"other=1"),)):
        with pytest.raises(HttpProblem) as raised:
            credential(_scope(*headers), lambda: table)
        assert raised.value.status == 401


def test_two_cookies_of_the_name_are_none() -> None:
    """One of them may have been planted by a neighbouring site."""
    assert cookie_of(_scope((b"cookie", b"headgate_session=a; headgate_session=b"))) is None
    assert cookie_of(_scope((b"cookie", b"headgate_session="))) is None


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [MARK, (b"sec-fetch-site", b"cross-site")],
        [MARK, (b"sec-fetch-site", b"same-site")],
        [MARK, (b"sec-fetch-site", b"none")],
        [MARK, (b"origin", b"http://evil.example")],
        [MARK, (b"origin", b"http://gate:8082")],
        [MARK, (b"origin", b"null")],
        [MARK, (b"origin", b"http://gate:8081.evil.example")],
        [(b"origin", b"http://gate:8081")],
    ],
)
def test_other_sites_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """A call with a cookie needs the mark, and must come from this site as far as the browser says."""
    table = Sessions(Clock())
    cookie = (b"cookie", b"headgate_session=" + table.begin("t").encode())
    with pytest.raises(HttpProblem) as raised:
        credential(_scope(cookie, *headers), lambda: table)
    assert raised.value.status == 403


@pytest.mark.parametrize(
    "headers",
    [[MARK], [MARK, (b"sec-fetch-site", b"same-origin")], [MARK, (b"origin", b"http://gate:8081")]],
)
def test_this_site_is_not_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """Nor a browser that does not say where a call comes from."""
    refuse_other_sites(_scope(*headers))


def test_the_cookie_is_for_this_site_only() -> None:
    """No script reads it, no other site sends it, and over TLS it is never sent without; so it is behind a proxy."""
    plain = cookie_line("v", _scope())
    assert re.fullmatch(rf"{sessions.COOKIE}=v; Path=/; Max-Age={MAX_SECONDS}; HttpOnly; SameSite=Strict", plain)
    for scope in (_scope(scheme="https"), _scope((b"origin", b"https://gate"))):
        assert cookie_line("v", scope).endswith("; Secure")
    assert "Max-Age=0" in cookie_line("", _scope(), 0)
