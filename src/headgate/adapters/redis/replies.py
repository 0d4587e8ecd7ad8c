"""What a server's error replies mean: decided here, once."""

from __future__ import annotations

from typing import Final

from headgate.errors import StoreError

NOSCRIPT: Final = "NOSCRIPT"

# The server is in no state to answer; the same command may succeed later or elsewhere.
_TRANSIENT: Final = frozenset(
    {
        "ASK",
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "MOVED",
        "NOAUTH",
        "NOPERM",
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",
        "WRONGPASS",
    }
)


def store_error(reply: Exception) -> StoreError:
    """Translate an error reply. What an input can provoke (wrong type, script error) is never transient."""
    text = str(reply)
    code = text.partition(" ")[0]
    return StoreError(f"the server answered: {text[:200]}", transient=code in _TRANSIENT)
