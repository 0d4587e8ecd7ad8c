"""Shards: one counter split over several keys, each with its part of the limit. Arithmetic and names.

The name of such a counter says how many parts it has, and each part has a key of its own:

    rl:{g=all}:all:fw1s|#12          the counter of rule "all", in 12 parts; nothing has this key on a cluster
    rl:{g=all|#7}:all:fw1s|#12       one of its parts

Redis Cluster chooses the slot of a part by what is in its braces. The number there is chosen so that of 12 parts
each is in a twelfth of the slots of its own, whatever the caller's values are: the parts are on different servers, as
evenly as servers share the slots. Values cannot contain "|", so none can imitate a part.

The parts of the limit add up to it, and no part admits more than it has. So the sum never exceeds the limit. A
process takes from one part, and from the others before it refuses.
"""

from __future__ import annotations

from binascii import crc_hqx
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Receipt
from headgate.core.parts import apportioned, part_meter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Key, Stamp
    from headgate.core.meter import Meter

MARK: Final = "|#"
"""In the name of a counter: it is in parts."""
MAX_SHARDS: Final = 1_024
_SLOTS: Final = 16_384


class Share(NamedTuple):
    """What is taken from one part."""

    part: int
    amount: int


def shards_of(name: Key) -> int:
    """How many parts a counter has, by its name; 0 if it is in one piece."""
    _, mark, rest = name.partition(MARK)
    return int(rest.partition("|")[0]) if mark else 0


def part_names(name: Key) -> tuple[Key, ...]:
    """The keys of a counter's parts, the first in the first stretch of the slots, and so on."""
    tag, _, rest = name.removeprefix("rl:{").partition("}")
    shards = shards_of(name)
    found: dict[int, Key] = {}
    salts = count()
    while len(found) < shards:
        salted = f"{tag}{MARK}{next(salts)}"
        found.setdefault(crc_hqx(salted.encode(), 0) % _SLOTS * shards // _SLOTS, f"rl:{{{salted}}}{rest}")
    return tuple(found[part] for part in range(shards))


def part_meters(meter: Meter, shards: int) -> tuple[Meter, ...]:
    """A meter for each part that has units: fewer than shards, if the limit has fewer units than that."""
    weights = (1,) * min(shards, meter.amount, meter.capacity)
    found = (part_meter(meter, weights, part) for part in range(len(weights)))
    return tuple(each for each in found if each is not None)


def plan(cost: int, rooms: Sequence[int], first: int) -> list[Share] | None:
    """From which parts to take a cost, where `rooms` is what each has left; None if all have too little.

    The part `first`, else one that has enough, else several: those with most first.
    """
    if rooms[first] >= cost:
        return [Share(first, cost)]
    by_room = sorted(range(len(rooms)), key=lambda part: (-rooms[part], (part - first) % len(rooms)))
    if rooms[by_room[0]] >= cost:
        return [Share(by_room[0], cost)]
    shares: list[Share] = []
    for part in by_room:
        amount = min(cost, rooms[part])
        if amount:
            shares.append(Share(part, amount))
            cost -= amount
    return None if cost else shares


def forced_plan(cost: int, rooms: Sequence[int], weights: Sequence[int]) -> list[Share]:
    """What each part is charged with for a cost that counts in any case: what it has left, then a share of the rest."""
    within = apportioned(min(cost, sum(rooms)), rooms) if any(rooms) else (0,) * len(rooms)
    beyond = apportioned(cost - sum(within), weights)
    amounts = (inside + outside for inside, outside in zip(within, beyond, strict=True))
    return [Share(part, amount) for part, amount in enumerate(amounts) if amount]


def later_plan(cost: int, rooms: Sequence[int], capacities: Sequence[int]) -> list[Share]:
    """How much each part would have to have for a cost that they do not have yet: what is missing, spread evenly.

    The cost is at most the sum of the capacities.
    """
    missing = cost - sum(rooms)
    lacking = [capacity - room for capacity, room in zip(capacities, rooms, strict=True)]
    more = apportioned(missing, lacking)
    return [Share(part, room + more[part]) for part, room in enumerate(rooms) if more[part]]


def written(shares: Sequence[Share], stamps: Sequence[Stamp]) -> str:
    """A stamp that says what was taken from which part, and when: ``3:5:1700000000000000 4:2:…``."""
    rows = zip(shares, stamps, strict=True)
    return " ".join(f"{part}:{amount}:{_stamp_text(stamp)}" for (part, amount), stamp in rows if amount)


def _stamp_text(stamp: Stamp) -> str:
    return ",".join(map(str, stamp)) if isinstance(stamp, tuple) else str(stamp)


def part_receipts(receipt: Receipt) -> list[Receipt]:
    """The receipts of the parts that an admission was taken from; those of a part count in the order of the stamp.

    Where only some is given back, the last parts are credited first; all are used up, so that a receipt counts once.
    """
    if not isinstance(receipt.stamp, str):  # counted in one piece, on another kind of store
        return [receipt]
    names, meters = part_names(receipt.key), part_meters(receipt.meter, shards_of(receipt.key))
    found: list[Receipt] = []
    left = receipt.amount
    for part, amount, stamp in reversed(_rows(receipt.stamp)):
        credit = min(left, amount)
        left -= credit
        found.append(Receipt(names[part], meters[part], stamp, credit, receipt.id))
    return found


def read_stamps(text: str) -> list[tuple[int, Stamp]]:
    """The amounts and stamps of a stamp that says what was taken from which part."""
    return [(amount, stamp) for _, amount, stamp in _rows(text)]


def _rows(text: str) -> list[tuple[int, int, Stamp]]:
    rows = (row.split(":") for row in text.split())
    return [(int(part), int(amount), _read_stamp(stamp)) for part, amount, stamp in rows]


def _read_stamp(text: str) -> Stamp:
    first, comma, second = text.partition(",")
    return (int(first), int(second)) if comma else int(first)
