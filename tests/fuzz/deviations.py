"""Where our engines deviate from others on purpose. docs/reference/protocol-deviations.md has the same list."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PAGE: Final = "docs/reference/protocol-deviations.md"


class Deviation(NamedTuple):
    """A difference between our engine and another one."""

    peer: str
    kind: str
    """``stricter``: we refuse or wait, and the other reads a request. ``laxer``: the other way round. ``differs``."""
    reason: str
    """By the side that refuses; a pattern."""


_STRICTER: Final = {
    "h11": (
        "Content-Length must be one whole number",
        "a body must be chunked or have a length, not both",
        "a chunk must be a size, a line end and so many bytes, the last one of size 0",
        "each header must be a name, a colon and a value on one line",
        "the first line must be a method, a path and HTTP/1.1",
        "there must be exactly one valid Host header",
        "the head has not ended",
    ),
    "llhttp": (
        "a body must be chunked or have a length, not both",
        "a chunk must be a size, a line end and so many bytes, the last one of size 0",
        "the first line must be a method, a path and HTTP/1.1",
        "the only transfer coding is chunked",
        "there must be exactly one valid Host header",
        "the body has not ended",
    ),
}
_LAXER: Final = {
    "h11": ("no request line received", "the connection is switched or ends"),
    "llhttp": (
        "Invalid character in chunk extensions name",
        "Invalid character in chunk extensions value",
        "Invalid character in chunk size",
        "Expected space after method",
        "Invalid method encountered",
        "Invalid characters in url",
        "Unexpected char in url schema",
        "Unexpected start char in url",
        "upgrade",
    ),
}
KNOWN: Final = frozenset(
    [Deviation(peer, "stricter", reason) for peer, reasons in _STRICTER.items() for reason in reasons]
    + [Deviation(peer, "laxer", reason) for peer, reasons in _LAXER.items() for reason in reasons]
    + [Deviation("llhttp", "differs", "CONNECT has no body"), Deviation("llhttp", "differs", "upgrade")]
)
_WAITS: Final = {
    ("h11", "stricter"): "the head has not ended",
    ("llhttp", "stricter"): "the body has not ended",
    ("h11", "laxer"): "the connection is switched or ends",
}


def named(peer: str, kind: str, refusal: str) -> Deviation:
    """A deviation by what the side that refuses has said; without a word it waits for more."""
    reason = re.sub(r"^\w+Error: ", "", refusal) or _WAITS.get((peer, kind), "waits")
    return Deviation(peer, kind, reason)


_ON_HALF_CLOSED: Final = "frame on half-closed (remote) stream"
_CONTENT_LENGTH: Final = 'Sends a HEADERS frame with the "content-length" header field which does not equal the'
_OVERFLOW: Final = "increasing the flow control window to above 2^31-1 on a stream"
H2SPEC: Final = frozenset(
    {
        f"generic/2: Sends a WINDOW_UPDATE {_ON_HALF_CLOSED}",
        f"generic/2: Sends a PRIORITY {_ON_HALF_CLOSED}",
        "http2/5.1.2: Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded",
        "http2/5.3.1: Sends HEADERS frame that depend on itself",
        "http2/5.3.1: Sends PRIORITY frame that depend on itself",
        f"http2/6.9.1: Sends multiple WINDOW_UPDATE frames {_OVERFLOW}",
        f"http2/8.1.2.6: {_CONTENT_LENGTH} DATA frame payload length",
        f"http2/8.1.2.6: {_CONTENT_LENGTH} sum of the multiple DATA frames payload length",
    }
)
"""Cases of h2spec that do not get the frame that they expect."""
