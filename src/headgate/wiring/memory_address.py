"""The address of a store in memory: ``memory://?max_counters=100000&when_full=deny``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from headgate.adapters.memory import DEFAULT_MAX_COUNTERS, WhenFull
from headgate.errors import InvalidSettings, short_repr

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_MAX_COUNTERS: Final = 10**9
_WHOLE: Final = re.compile(r"[0-9]{1,12}")


def is_in_memory(url: str) -> bool:
    """Whether an address is one in memory, where counters are of this process only."""
    return memory_address(url) is not None


def memory_address(url: str) -> SplitResult | None:
    """The address, if it is one in memory."""
    try:
        address = urlsplit(url)
    except (AttributeError, TypeError, ValueError):
        return None  # `open_shared` says what is wrong with it
    return address if address.scheme == "memory" else None


def memory_options(address: SplitResult) -> tuple[int, WhenFull]:
    """How many counters it may have, and what happens above that."""
    if address.netloc or address.path.strip("/") or address.fragment:
        msg = "memory:// takes no host and no path; write memory://"
        raise InvalidSettings(msg)
    given = parse_qsl(address.query, keep_blank_values=True)
    options = dict(given)
    if unknown := set(options) - {"max_counters", "when_full"}:
        msg = f"memory:// has no option {short_repr(min(unknown))}; it has max_counters and when_full"
        raise InvalidSettings(msg)
    if len(options) < len(given):
        msg = "an option of memory:// appears twice"
        raise InvalidSettings(msg)
    number = options.get("max_counters", str(DEFAULT_MAX_COUNTERS))
    if not _WHOLE.fullmatch(number) or not 0 < int(number) <= _MAX_COUNTERS:
        msg = f"max_counters of memory:// is a whole number from 1 to {_MAX_COUNTERS}, not {short_repr(number)}"
        raise InvalidSettings(msg)
    try:
        when_full = WhenFull(options.get("when_full", WhenFull.SHARE))
    except ValueError:
        msg = f"when_full of memory:// is one of {', '.join(WhenFull)}, not {short_repr(options['when_full'])}"
        raise InvalidSettings(msg) from None
    return int(number), when_full
