"""HeadReader of requests: what they say, and what is refused because it could be read in two ways."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.protocols.http1.messages import CHUNKED, Head, HeadReader, Http1Error, read_head

HOST = b"Host: x\r\n"


def head(*lines: bytes, first: bytes = b"POST /v1/check HTTP/1.1") -> Head:
    return read_head(first + b"\r\n" + HOST + b"".join(line + b"\r\n" for line in lines))


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/v1/check", "/v1/check", ""),
        (b"/a%20b?c=%20&d", "/a b", "c=%20&d"),
        (b"/%C3%A9/%ff", "/é/\N{REPLACEMENT CHARACTER}", ""),
        (b"http://x:80/a?b", "/a", "b"),
        (b"http://x", "/", ""),
        (b"*", "*", ""),
        (b"x:80", "x:80", ""),
    ],
)
def test_a_target_is_a_path_and_a_query(target: bytes, path: str, query: str) -> None:
    """The path is decoded, the query is left as it was sent, and who sits behind a proxy may send a whole URL."""
    found = head(first=b"GET %b HTTP/1.1" % target)
    assert (found.method, found.path, found.query) == ("GET", path, query)


def test_headers_are_found_by_their_names_in_lower_case() -> None:
    """Of several lines all are kept, in their order; values lose the blanks around them, and may be any bytes."""
    found = head(b"X-One:  a b \t", b"x-one:c", b"Latin: \xff", "Text: é".encode(), b"Empty:")
    assert (found.get("x-one"), found.get_all("x-one")) == ("a b", ["a b", "c"])
    assert (found.get("latin"), found.get("text"), found.get("empty")) == ("ÿ", "é", "")
    assert (found.get("none"), found.get_all("none")) == (None, ())


@pytest.mark.parametrize(
    ("first", "line", "keeps_open", "is_keep_alive"),
    [
        (b"GET / HTTP/1.1", b"A: b", True, False),
        (b"GET / HTTP/1.1", b"Connection: Close", False, False),
        (b"GET / HTTP/1.1", b"Connection: upgrade, close", False, False),
        (b"GET / HTTP/1.0", b"A: b", False, False),
        (b"GET / HTTP/1.0", b"Connection: Keep-Alive", True, True),
        # Words are bytes: other letters of Unicode whose lower case is an ASCII letter make another word.
        (b"GET / HTTP/1.0", "Connection: \N{KELVIN SIGN}eep-alive".encode(), False, False),
        (b"GET / HTTP/1.0", "Connection: é, Keep-Alive".encode(), True, True),
    ],
)
def test_callers_say_whether_they_come_again(
    *,
    first: bytes,
    line: bytes,
    keeps_open: bool,
    is_keep_alive: bool,
) -> None:
    """A connection stays open unless the client says otherwise; before HTTP/1.1 it was the other way round."""
    found = head(line, first=first)
    assert (found.keeps_open, found.is_keep_alive) == (keeps_open, is_keep_alive)


def test_the_length_of_a_body() -> None:
    """It is announced, or the body says where it ends, or there is none; it may be kept back until it is asked for."""
    assert head().length == 0
    assert head(b"Content-Length: 007").length == 7
    assert head(b"Transfer-Encoding: Chunked").length == CHUNKED
    assert head(b"Expect: 100-Continue").expects_continue
    assert not head().expects_continue


@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Length: 1", b"Content-Length: 1"),
        (b"Content-Length: 1, 1",),
        (b"Content-Length: +1",),
        (b"Content-Length: 1_0",),
        (b"Content-Length: \xd9\xa1",),
        (b"Content-Length:",),
        (b"Content-Length: " + b"9" * 30,),
        (b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: gzip, chunked",),
        (b"Transfer-Encoding: \x0bchunked",),
        ("Transfer-Encoding: chun\N{KELVIN SIGN}ed".encode(),),
        (b"Host: y",),
        (b"Content-Length : 1",),
        (b"A b: c",),
        (b"A : c",),
        (b" A: c",),
        (b"A: b", b" folded"),
        (b"A: b\rC: d",),
        (b"A: b\nC: d",),
        (b"A: \0",),
        (b": b",),
        (b"no colon",),
        (b"",),
        *([tuple(b"X-%d: y" % number for number in range(100))]),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(lines: tuple[bytes, ...]) -> None:
    """Programs disagree on where such a request ends, or on what it says: it is answered, and nothing behind it is."""
    with pytest.raises(Http1Error) as refused:
        head(*lines)
    assert refused.value.status in {400, 431}


@pytest.mark.parametrize(
    "first",
    [
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b" GET / HTTP/1.1",
        b"GET /",
        b"GET / HTTP/2.0",
        b"GET / http/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"G(T / HTTP/1.1",
        b"GET http://[ HTTP/1.1",
    ],
)
def test_first_lines_that_are_none(first: bytes) -> None:
    """A method, a path and the version have one blank between them and nothing else."""
    with pytest.raises(Http1Error, match="malformed HTTP/1"):
        head(first=first)


def test_a_host_is_named() -> None:
    """HTTP/1.1 wants to know whom the request is for; HTTP/1.0 did not."""
    with pytest.raises(Http1Error, match="one valid Host header"):
        read_head(b"GET / HTTP/1.1\r\n")
    assert read_head(b"GET / HTTP/1.0\r\n").path == "/"
    for host in (b"x, y", b"a b", b"a/b", b"a@b"):
        with pytest.raises(Http1Error, match="one valid Host header"):
            read_head(b"GET / HTTP/1.1\r\nHost: %b\r\n" % host)
    assert read_head(b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n").path == "/"


def test_equal_heads_are_read_once() -> None:
    """What came before is remembered, as long as it is short, and there is an end to what is remembered."""
    heads = HeadReader()
    heads.read(b"GET / HTTP/1.0\r\n")
    first = heads.read(b"GET / HTTP/1.0\r\n")
    assert heads.read(b"GET / HTTP/1.0\r\n") is first
    long = b"GET / HTTP/1.0\r\nX: " + b"y" * 1_024 + b"\r\n"
    assert heads.read(long) is not heads.read(long)
    for number in (number for number in range(1_024) for _ in range(2)):
        heads.read(b"GET /%d HTTP/1.0\r\n" % number)
    assert heads.read(b"GET / HTTP/1.0\r\n") is not first


_NAMES = st.sampled_from([b"Content-Length", b"Transfer-Encoding", b"Connection", b"X", b"Host", b"A B", b""])
_VALUES = st.sampled_from([b"1", b"0", b"chunked", b"close", b"", b" 1 ", b"1, 1", b"-1", b"x\x01", b"gzip", b"\xe9"])


@given(
    st.sampled_from([b"GET", b"POST", b"P~", b"G T", b""]),
    st.sampled_from([b"/", b"/a?b", b"*", b"/ b", b"http://x/", b"/\x80"]),
    st.sampled_from([b"1.1", b"1.0", b"2.0"]),
    st.lists(st.tuples(_NAMES, st.sampled_from([b":", b": ", b" :", b"\n:"]), _VALUES), max_size=4),
)
@example(b"GET", b"/", b"1.1", [(b"Host", b":", b"1")])
def test_whatever_is_taken_h11_takes_too_and_reads_it_the_same(
    method: bytes, target: bytes, version: bytes, lines: list[tuple[bytes, bytes, bytes]]
) -> None:
    """A head that is not refused says the same to a parser of others: its headers, and where its body ends."""
    raw = b"%b %b HTTP/%b\r\n" % (method, target, version) + b"".join(b"%b%b%b\r\n" % line for line in lines)
    try:
        ours = read_head(raw)
    except Http1Error:
        return
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(raw + b"\r\n")
    request = theirs.next_event()
    assert isinstance(request, h11.Request)
    assert request.method.decode() == ours.method
    assert [value.decode("latin-1") for name, value in request.headers if name == b"x"] == list(ours.get_all("x"))
    lengths = [value for name, value in request.headers if name == b"content-length"]
    is_chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
    assert ours.length == (CHUNKED if is_chunked else int(lengths[0]) if lengths else 0)


def test_heads_that_never_repeat_are_not_cached() -> None:
    """A head is cached when it comes again; heads with an id of their own push none of those out."""
    reader = HeadReader()
    usual = b"GET / HTTP/1.1\r\nHost: x\r\n"
    assert reader.read(usual) is not reader.read(usual)
    cached = reader.read(usual)
    for number in range(10_000):
        reader.read(b"GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\n" % number)
    assert reader.read(usual) is cached
    assert len(reader.cached) == 1
