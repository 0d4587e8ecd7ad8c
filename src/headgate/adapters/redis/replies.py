"""What a server's error replies mean: decided here, once."""

from __future__ import annotations

import re
from typing import Final

from headgate.errors import StoreError

NOSCRIPT: Final = "NOSCRIPT"
NOPERM: Final = "NOPERM"
MOVED: Final = "MOVED"
ASK: Final = "ASK"
TRYAGAIN: Final = "TRYAGAIN"

_REDIRECTIONS: Final = frozenset({MOVED, ASK, TRYAGAIN})
"""The server is well, but this belongs elsewhere."""

_NO_OUTAGE: Final = _REDIRECTIONS | {NOPERM}
_UNSERVED: Final = "Hash slot not served"
"""Of a cluster this one slot has no node; the node that says so is well."""

_TRANSIENT: Final = _REDIRECTIONS | {
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
"""The server is in no state to answer; the same command may succeed later or elsewhere."""


_NO_ROOM: Final = "ERR max number of clients reached"
"""Said instead of the first answer; in all but its code it is a DENIED."""
# Redis before 7 wraps what a command inside a script was answered.
_IN_SCRIPT: Final = re.compile(r"ERR Error running script.*?: -?([A-Z]{3,}) ")
# A command that the user may not run is an error of another kind inside a script than outside of one.
_FORBIDDEN_IN_SCRIPT: Final = re.compile(r"ERR (ACL failure in script|.*The user executing the script can't)")


def code_of(answer: object) -> str:
    """The first word of an error reply, which says what kind it is; nothing for all other answers."""
    if not isinstance(answer, Exception):
        return ""
    text = str(answer)
    if text.startswith(_NO_ROOM):
        return "DENIED"
    if _FORBIDDEN_IN_SCRIPT.match(text):
        return NOPERM
    wrapped = _IN_SCRIPT.match(text)
    return wrapped[1] if wrapped else text.partition(" ")[0]


def store_error(reply: Exception) -> StoreError:
    """Translate an error reply. What an input can provoke (wrong type, script error) is never transient."""
    text = str(reply)
    return StoreError(f"the server answered: {text[:200]}", transient=code_of(reply) in _TRANSIENT)


def error_of(answer: object) -> StoreError:
    """The error that an answer is, when a good one would have been something else."""
    if isinstance(answer, StoreError):
        return answer
    if isinstance(answer, Exception):
        return store_error(answer)
    return StoreError(f"the server answered something unexpected: {answer!r:.100}", transient=False)


def is_outage(answer: object) -> bool:
    """Whether an answer says that the server cannot do its work now."""
    if isinstance(answer, StoreError):
        return answer.transient
    code = code_of(answer)
    return code in _TRANSIENT and code not in _NO_OUTAGE and _UNSERVED not in str(answer)
