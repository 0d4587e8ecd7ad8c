"""Random connections of HTTP/1: whole requests, and requests with something odd at a random place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_METHODS = (b"GET", b"POST", b"HEAD", b"get", b"PATCH", b"FOO", b"G\xc3\x89T", b"", b"G T", b"CONNECT", b"M-SEARCH")
_TARGETS = (b"/", b"/a?b=c", b"/%41%zz", b"*", b"http://x/y?z", b"/\xff", b"/a b", b"x", b"http://[", b"/a#b", b"//x")
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"HTTP/1", b"http/1.1")
_HEADERS = (
    *(b"Host: x", b"Host: y", b"Host:", b"Host: a b", b"X: y", b"X : y", b" X: y", b"X: a\tb", b"X: \x00", b"X: \xff"),
    *(b"Content-Length: 3", b"Content-Length: 03", b"Content-Length: +3", b"Content-Length: 3, 3", b"Content-Length:"),
    *(b"Content-Length: 99999999999999999999", b"Content-Length: 0x3", b"Content-Length: -1", b"X"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: Chunked", b"Transfer-Encoding: gzip, chunked"),
    *(
        b"Transfer-Encoding: chun\xe2\x84\xaaed",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: identity",
    ),
    *(b"Transfer-Encoding: chunked,", b"Transfer-Encoding:\x0bchunked", b"Transfer_Encoding: chunked"),
    *(
        b"Connection: close",
        b"Connection: keep-alive",
        b"Connection: Upgrade",
        b"Upgrade: h2c",
        b"Expect: 100-continue",
    ),
)
_ENDS = (b"\r\n",) * 30 + (b"\n", b"\r", b"\r\r\n", b"\n\r\n")
_BODIES = (
    b"",
    b"abc",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n",
    b"3\nabc\n0\n\n",
    b"03\r\nabc\r\n0\r\n\r\n",
)
_BODIES_ODD = (
    b"-3\r\nabc\r\n0\r\n\r\n",
    b"0x3\r\nabc\r\n0\r\n\r\n",
    b"3 \r\nabc\r\n0\r\n\r\n",
    b"3\r\nabcd\r\n0\r\n\r\n",
    b"\r\n",
)


def connection(random: Random) -> bytes:
    """The bytes of one connection."""
    return b"".join(_request(random) for _ in range(random.choice((1, 1, 1, 2))))


def _request(random: Random) -> bytes:
    is_odd = random.random() < 0.7
    method = random.choice(_METHODS) if is_odd and random.random() < 0.2 else random.choice(_METHODS[:3])
    target = random.choice(_TARGETS) if is_odd and random.random() < 0.3 else random.choice(_TARGETS[:3])
    version = random.choice(_VERSIONS) if is_odd and random.random() < 0.2 else _VERSIONS[0]
    headers = [b"Host: x"] if random.random() < 0.9 else []
    headers += random.choices(_HEADERS, k=random.choice((0, 1, 1, 2, 3))) if is_odd else []
    body = b""
    kind = random.random()
    if kind < 0.25:
        headers.append(b"Content-Length: 3")
        body = b"abc"
    elif kind < 0.5:
        headers.append(b"Transfer-Encoding: chunked")
        body = random.choice(_BODIES[2:] + _BODIES_ODD) if is_odd else _BODIES[2]
    elif is_odd and kind < 0.6:
        body = random.choice(_BODIES + _BODIES_ODD)
    ends = _ENDS if is_odd else _ENDS[:1]
    lines = [b" ".join((method, target, version)), *headers]
    text = b"".join(line + random.choice(ends) for line in lines) + random.choice(ends) + body
    if is_odd and random.random() < 0.3:
        text = _mutated(random, text)
    return text


def _mutated(random: Random, text: bytes) -> bytes:
    at = random.randrange(len(text) + 1)
    match random.randrange(4):
        case 0:
            return text[:at] + bytes((random.randrange(256),)) + text[at + 1 :]
        case 1:
            return text[:at] + text[at + 1 :]
        case 2:
            return text[:at] + random.choice((b"\r\n", b" ", b"\t", b":", b"\x00", b"\xe2\x84\xaa")) + text[at:]
        case _:
            return text[:at]
