from __future__ import annotations

from contextlib import suppress
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.adapters.redis import ServerAddress, StoreAddress
from headgate.errors import InvalidSettings
from headgate.wiring import blocking_store, open_store

LISTS: Final = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "redis+ring", "rediss+ring")
SCHEMES: Final = ("redis", "rediss", "unix", "redis+unix", *LISTS)

pieces = st.sampled_from(
    [*":/?#@[],%&=. ", "::1", "[::1]", "%00", "%ff", "6379", "²", "9" * 5_000, "\udc80", "\n", "db", "ssl_ca", "host"]
)
urls = st.builds(
    "".join,
    st.tuples(st.sampled_from(SCHEMES), st.sampled_from(["://", ":", "", "://host"]), st.lists(pieces).map("".join)),
)


def _refusal(url: str) -> str:
    with pytest.raises(InvalidSettings) as raised:
        StoreAddress.parse(url)
    return str(raised.value)


def _servers(url: str) -> list[str]:
    return [str(server) for server in StoreAddress.parse(url).servers]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://x", "that is not the address of a Redis server"),
        ("redis:h", "that is not an address; write redis://host:6379"),
        ("redis://h#1", "that is not an address; write redis://host:6379"),
        ("redis://\udc80", "that is not an address; write redis://host:6379"),
        ("redis://h:0", "the port is a number from 1 to 65535"),
        ("redis://h:99999", "the port is a number from 1 to 65535"),
        ("redis://h:port", "write servers as host:port or [IPv6 address]:port"),
        ("redis://::1:6379", "write servers as host:port or [IPv6 address]:port"),
        ("redis://[::1", "write servers as host:port or [IPv6 address]:port"),
        ("redis+ring://a,,b", "write servers as host:port or [IPv6 address]:port"),
        ("redis://[v1.x]", "what stands in brackets is no IPv6 address"),
        ("redis://[]:6379", "what stands in brackets is no IPv6 address"),
        ("redis://h/notanumber", "the database is a number from 0 to 1000"),
        ("redis://h/1/2", "the database is a number from 0 to 1000"),
        ("redis://h/²", "the database is a number from 0 to 1000"),
        (f"redis://h/{'9' * 5_000}", "the database is a number from 0 to 1000"),
        ("redis://a,b", "one server is enough here; write redis+cluster:// or redis+ring:// for several"),
        ("redis+cluster://h/1", "a cluster has only database 0"),
        ("redis+sentinel://h", "say what the sentinels call the primary"),
        ("unix://", "say where the socket is"),
        ("unix:///a%00b", "say where the socket is"),
        ("redis://h?what=1", "unknown option 'what'; known are db, "),
        ("redis://h?deadline_ms=20&deadline_ms=30", "an option appears twice"),
        ("redis://h?protocol=4", "protocol is a number from 2 to 3"),
        ("redis://h?on_store_error=panic", "on_store_error is one of allow, deny, local, not 'panic'"),
        ("rediss://h?ssl_ca=/no", "the certificates cannot be used"),
        ("rediss://h?ssl_ca=%00", "the certificates cannot be used"),
        ("rediss://h?ssl_check=maybe", "ssl_check is yes or no, not 'maybe'"),
    ],
)
def test_a_malformed_address_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    """An address that makes no sense is refused, and its password is not repeated."""
    assert sentence in _refusal(url)
    assert "secret" not in _refusal(url.replace("://", "://user:secret@"))


@pytest.mark.parametrize("character", [*"?#/@[]:,%\\ \n", "@h/", "/@", "://"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_part_of_a_password_is_repeated(scheme: str, character: str) -> None:
    """A password that was not percent-encoded stands in no error, whatever the address was taken for."""
    url = f"{scheme}://:left{character}right@host:port/name/db?x"
    for refuses in (StoreAddress.parse, open_store, blocking_store):
        with pytest.raises(InvalidSettings) as raised:
            refuses(url)
        assert "left" not in str(raised.value)
        assert "right" not in str(raised.value)


@pytest.mark.parametrize("character", "?#/@")
def test_a_password_that_must_be_encoded_is_told_so(character: str) -> None:
    """What would end the password early is refused with how to write it, and read if it is written so."""
    assert _refusal(f"redis://:s3cr{character}etpw@host:6379") == (
        "redis://…: user and password stand once, before the hosts, and must be percent-encoded: "
        "@ is %40, / is %2F, ? is %3F, # is %23"
    )
    assert ServerAddress.parse(f"redis://:s3cr%{ord(character):02X}etpw@h").password == f"s3cr{character}etpw"


@settings(max_examples=500)
@given(urls)
@example("redis://host/²")
@example(f"redis://host/{'9' * 5_000}")
@example("redis://[::1")
@example("rediss://host?ssl_ca=\0")
def test_an_address_is_read_or_refused(url: str) -> None:
    """Whatever is written as an address, nothing but `InvalidSettings` comes of it."""
    with suppress(InvalidSettings):
        for server in StoreAddress.parse(url).servers:
            assert str(server)
            assert server.path is not None or 1 <= server.port <= 65_535


@settings(max_examples=200)
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """The same holds for what is no address at all."""
    with suppress(InvalidSettings):
        StoreAddress.parse(text)


def test_an_address_in_full() -> None:
    """User, password, host, port, database and options of an address are those that were written."""
    address = StoreAddress.parse(" Redis://us%65r:p%40ss@Example.com:7000/3?deadline_ms=20&protocol=3\n")
    assert address.servers == [ServerAddress("example.com", 7000, None, "user", "p@ss", 3, 3)]
    assert address.deadline == 0.02
    assert _servers("redis://") == ["localhost:6379"]
    assert _servers("redis://:7000") == ["localhost:7000"]
    assert _servers("redis+sentinel://a:1,b/name/2") == ["a:1", "b:26379"]
    assert _servers("unix://user:pw@/run/a%40b.sock") == ["/run/a@b.sock"]


@pytest.mark.parametrize("scheme", ["redis", "rediss", *LISTS])
def test_ipv6_addresses_stand_in_brackets(scheme: str) -> None:
    """An IPv6 address is written in brackets, with a port or without, and shown so."""
    usual = 26379 if "sentinel" in scheme else 6379
    (server,) = StoreAddress.parse(f"{scheme}://[::1]/{'name' if 'sentinel' in scheme else ''}").servers
    assert (server.host, server.port) == ("::1", usual)
    assert str(server) == f"[::1]:{usual}"
    assert str(ServerAddress.parse(f"{scheme}://user:pw@[2001:db8::7]:2/0")) == "[2001:db8::7]:2"


@pytest.mark.parametrize("scheme", LISTS)
def test_ipv6_addresses_stand_in_lists(scheme: str) -> None:
    """In lists of servers, IPv6 addresses and names may stand side by side."""
    assert _servers(f"{scheme}://:pw@a:1,[2001:db8::7]:2,[::1]:3/0") == ["a:1", "[2001:db8::7]:2", "[::1]:3"]
