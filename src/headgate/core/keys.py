"""Names of counters: all key formats.

    rl:{u=u_42}:search:sc1h                   rule "search", per user, one hour
    rl:{u=u_42}:search:sc1h|e=/api/search     the same, per user and endpoint
    rl:{u@203.0.113.9}:search:sc1h            no user was known: the address stands in, marked
    rl:{k=sha256:4e07408562bedb8b60ce05c1decfe3ad}:search:sc1h   per API key: its id, or a digest; never the key
    rl:{g=search}:search:fw1s                 a global rule; its own id spreads such rules over slots
    rl:{g=all}:all:fw1s|#12                   a counter in 12 parts, which have keys of their own: see `shards`
    rl:{g=all}:all:fw1s|@central.eu           a counter that regions share: see `regions`
    rl:h:fw1m:login:203.0.113.9               Limiter.hit, a key without a rule
    rl:{u=u_42}:search:sc1h|~ID               beside the counter: that the receipt ID was given back
    rl:~{rl:h:fw1m:login:203.0.113.9}:ID      the same for a key without a rule

A rule stands in them by its id, which is its name unless it says otherwise.
Redis Cluster chooses the slot by what is in braces, the subject, so all counters of one
subject can be taken together. A value can neither choose its slot nor
imitate another key: braces, "|" and "%" are percent-encoded, as is everything that is
not printable ASCII, and what would be too long is replaced by its hash.

A `KeyTemplate` holds the fixed part of the keys of one limit.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.meter import Meter, meter_for
from headgate.core.spread import SpreadMode
from headgate.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from headgate.core.limit import Limit
    from headgate.core.rule import Rule
    from headgate.core.spread import Spread

_MAX_VALUE: Final = 96
_MAX_REMEMBERED: Final = 1_024
_ESCAPED: Final = frozenset(b"{}|%")
_FIRST_PRINTABLE, _LAST_PRINTABLE = 0x20, 0x7E

BARE: Final = "rl:h:"
_COMPANION_MARK: Final = "|~"

SUBJECTS: Final = {"user": "u", "api_key": "k", "tenant": "t", "ip": "i"}
"""Parts of `per` that name a caller, in the order in which they become the subject."""


def escape(value: str) -> str:
    """Make any text safe inside a key; different texts stay different."""
    if (
        value.isascii()
        and value.isprintable()
        and "{" not in value
        and "}" not in value
        and "%" not in value
        and "|" not in value
        and len(value) <= _MAX_VALUE
    ):
        return value
    return _remembered(value) if len(value) <= _MAX_VALUE else _encoded(value)


def _encoded(value: str) -> str:
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) <= _MAX_VALUE:  # encoding makes nothing shorter, and takes milliseconds for a long value
        encoded = "".join(
            chr(byte) if _FIRST_PRINTABLE <= byte <= _LAST_PRINTABLE and byte not in _ESCAPED else f"%{byte:02X}"
            for byte in raw
        )
        if len(encoded) <= _MAX_VALUE:
            return encoded
    # "%#" cannot come out of the encoding above, so no value can imitate another one's hash.
    return f"%#{blake2b(raw, digest_size=20).hexdigest()}"


_remembered = lru_cache(_MAX_REMEMBERED)(_encoded)  # templates of routes have braces, and come with every request


def hit_key(key: str, code: str) -> str:
    """The counter of a bare key. Capital H marks an escaped one, so that no plain key can read the same."""
    escaped = escape(key)
    return f"{BARE}{code}:{key}" if escaped == key else f"rl:H:{code}:{escaped}"


def companion(name: str, label: str) -> str:
    """The name of another key that must live in the same slot as a counter."""
    if name.startswith("rl:{"):
        return f"{name}{_COMPANION_MARK}{label}"
    # The names of bare keys have no braces in them, so all of one can be the hash tag.
    return f"rl:~{{{name}}}:{label}"


def is_companion(name: str) -> bool:
    """Whether a name is that of a key beside a rule's counter, which is in one piece however the counter is spread."""
    return _COMPANION_MARK in name


def plain_hit(name: str) -> tuple[str, str] | None:
    """The code and the bare key that a name was made of; None for all other names."""
    if not name.startswith(BARE):
        return None
    code, _, key = name.removeprefix(BARE).partition(":")
    return code, key


def without_subject(name: str) -> str:
    """What counters of one limit have in common: the name without its subject."""
    if name.startswith("rl:{"):
        return name.partition("}:")[2].partition("|")[0]
    return name.split(":", 3)[2]


def check_key(key: object) -> str:
    """A key as text, or an error that says what is wrong with it."""
    if not isinstance(key, str):
        msg = f"a key is text, not {short_repr(key)}"
        raise InvalidRequest(msg)
    if not key:
        msg = "a key must not be empty: all callers would share one counter; use for example 'global'"
        raise InvalidRequest(msg)
    return key


def spread_mark(spread: Spread) -> str:
    """What the names of a rule's counters say about where their parts are held."""
    if spread.mode is SpreadMode.SHARDS:
        return f"|#{spread.parts}"
    if spread.regions is not None:
        return f"|@{spread.regions.value}{'' if spread.home is None else f'.{spread.home}'}"
    return ""


class KeyTemplate(NamedTuple):
    """One limit of a rule."""

    middle: str
    """What every key of it has between the subject and the other parts."""
    meter: Meter
    policy: str


# Rules with the same limit share its meter: with thousands of rules, less to fetch from memory for each request.
_meter = lru_cache(1_024)(meter_for)


def key_templates(rule: Rule, limits: tuple[Limit, ...]) -> tuple[KeyTemplate, ...]:
    """One template for each limit that counts. Raises `InvalidLimit` if a limit does not fit the rule."""
    meters = [_meter(limit, rule.algorithm, rule.max_delay) for limit in limits]
    mark = spread_mark(rule.spread)
    return tuple(
        KeyTemplate(
            f"}}:{rule.id}:{meter.code}{mark}",
            meter,
            rule.name if len(meters) == 1 else f"{rule.name}:{meter.code[2:]}",
        )
        for meter in meters
        if meter is not None
    )
