"""What error replies mean: decided here, once."""

from __future__ import annotations

import re
from typing import Final

from headgate.errors import StoreError

NOSCRIPT: Final = "NOSCRIPT"
NOPERM: Final = "NOPERM"
MOVED: Final = "MOVED"
ASK: Final = "ASK"
TRYAGAIN: Final = "TRYAGAIN"

_REDIRECTS: Final = frozenset({MOVED, ASK, TRYAGAIN})
"""The server is well, but the keys are on another one."""

_NO_OUTAGE: Final = _REDIRECTS | {NOPERM}
_UNSERVED: Final = "Hash slot not served"
"""One slot of a cluster has no node; the node that says so is well."""

_TRANSIENT: Final = _REDIRECTS | {
    "BUSY",
    "CLUSTERDOWN",
    "DENIED",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    NOPERM,
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "UNBLOCKED",
    "WRONGPASS",
}
"""The server cannot run the command now; the same command may succeed later or elsewhere."""

_MAX_CLIENTS: Final = "ERR max number of clients reached"
"""Sent instead of the first reply; it means DENIED but has another code."""
# Redis before 7 wraps the error of a command inside a script.
_IN_SCRIPT: Final = re.compile(r"ERR Error running script.*?: -?([A-Z]{3,}) ")
# Inside a script, a command that the user may not run is another error than outside.
_FORBIDDEN_IN_SCRIPT: Final = re.compile(r"ERR (ACL failure in script|.*The user executing the script can't)")


def code_of(reply: object) -> str:
    """The code of an error reply, its first word; empty for all other replies."""
    if not isinstance(reply, Exception):
        return ""
    text = str(reply)
    if text.startswith(_MAX_CLIENTS):
        return "DENIED"
    if _FORBIDDEN_IN_SCRIPT.match(text):
        return NOPERM
    wrapped = _IN_SCRIPT.match(text)
    return wrapped[1] if wrapped else text.partition(" ")[0]


def store_error(reply: Exception) -> StoreError:
    """Translate an error reply. What an input can provoke (wrong type, script error) is never transient."""
    text = str(reply)
    return StoreError(f"redis replied: {text[:200]}", transient=code_of(reply) in _TRANSIENT)


def error_of(reply: object) -> StoreError:
    """The error that a reply is, where another one was expected."""
    if isinstance(reply, StoreError):
        return reply
    if isinstance(reply, Exception):
        return store_error(reply)
    return StoreError(f"unexpected reply of redis: {reply!r:.100}", transient=False)


def is_outage(reply: object) -> bool:
    """Whether a reply means that the server cannot work now."""
    if isinstance(reply, StoreError):
        return reply.transient
    code = code_of(reply)
    return code in _TRANSIENT and code not in _NO_OUTAGE and _UNSERVED not in str(reply)
