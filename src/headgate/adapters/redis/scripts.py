"""The Lua scripts, assembled from their files, and the arguments they take."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Hit
from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from headgate.core.decision import Receipt

_FILES: Final = {
    Algorithm.FIXED_WINDOW: "fixed_window",
    Algorithm.SLIDING_WINDOW_COUNTER: "sliding_window_counter",
    Algorithm.SLIDING_WINDOW_LOG: "sliding_window_log",
    Algorithm.TOKEN_BUCKET: "buckets",
    Algorithm.LEAKY_BUCKET: "buckets",
    Algorithm.CONCURRENCY: "concurrency",
}
_CODES: Final = {
    Algorithm.FIXED_WINDOW: 0,
    Algorithm.SLIDING_WINDOW_COUNTER: 1,
    Algorithm.SLIDING_WINDOW_LOG: 2,
    Algorithm.TOKEN_BUCKET: 3,
    Algorithm.LEAKY_BUCKET: 4,
    Algorithm.CONCURRENCY: 5,
}
_CALENDAR: Final = 6
_FORCED: Final = 16
_HIT: Final = Struct("<dddddd").pack
_TTL: Final = Struct("<d").pack
_BOUNDS: Final = Struct("<dddd").pack
_STAMP: Final = Struct("<ddd").pack


class Script(NamedTuple):
    """A script's text and the name the server knows it by."""

    text: bytes
    sha: bytes


def _assembled(*names: str) -> Script:
    folder = files("headgate.adapters.redis").joinpath("lua")
    parts = [folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names]
    text = "\n".join(parts).encode()
    return Script(text, sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def take_script(algorithms: frozenset[Algorithm]) -> Script:
    """Take or peek, for hits of these algorithms."""
    return _assembled("prelude", *_files(algorithms), "counters", "take")


@cache
def give_back_script(algorithms: frozenset[Algorithm]) -> Script:
    """Give back, for receipts of these algorithms."""
    return _assembled("prelude", *_files(algorithms), "counters", "give_back")


def _files(algorithms: frozenset[Algorithm]) -> list[str]:
    return sorted({_FILES[algorithm] for algorithm in algorithms})


PRESENCE: Final = _assembled("presence")


def packed_hit(hit: Hit) -> bytes:
    """A hit's parameters as prelude.lua reads them."""
    key, meter, cost, holder, ttl, forced, _ = hit
    code = _CALENDAR if meter.bounds is not None else _CODES[meter.algorithm]
    if forced:
        code += _FORCED
    numbers: bytes = _HIT(code, cost, meter.amount, meter.period, meter.capacity, meter.max_delay)
    if meter.bounds is not None:
        return numbers + _BOUNDS(*meter.bounds)
    if meter.algorithm is Algorithm.CONCURRENCY:
        return numbers + _TTL(ttl or meter.period) + (holder or key).encode()
    return numbers


def packed_receipt(receipt: Receipt) -> tuple[bytes, bytes]:
    """A receipt's parameters as give_back.lua reads them."""
    key, meter, stamp, amount, _ = receipt
    if isinstance(stamp, str):  # slots are released by their holder's name
        return packed_hit(Hit(key, meter, amount, stamp, meter.period)), _STAMP(0, 0, 0)
    if isinstance(stamp, tuple):
        return packed_hit(Hit(key, meter, amount)), _STAMP(stamp[0], *divmod(stamp[1], meter.period))
    return packed_hit(Hit(key, meter, amount)), _STAMP(stamp, 0, 0)
