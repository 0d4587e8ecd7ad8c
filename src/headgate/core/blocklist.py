"""Blocks: users, API keys and ranges of addresses that are refused until a given time.

If several blocks hold for a request, the one that ends last counts, since only then is the
caller admitted again. It is worked out beforehand, so a look-up is one step for a user or a
key, and one binary search for an address, however many ranges there are.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.address import parse_range
from headgate.core.parsing.fields import Fields
from headgate.core.rule import Action, Response, Rule
from headgate.core.units import SECOND, Micros
from headgate.errors import InvalidFields, Problem, short_repr

if TYPE_CHECKING:
    from headgate.core.address import Address
    from headgate.core.request import Request

POLICY: Final = "block"
"""The name under which callers see that they are blocked."""
_STATUS: Final = 403
_LATEST: Final = 253_402_300_800
"""The year 10000, in seconds."""
_SUBJECTS: Final = ("user", "api_key", "network")
_KNOWN: Final = ("id", *_SUBJECTS, "reason", "until")


class Block(NamedTuple):
    """One block: what it is called, what the caller is told, and when it ends."""

    id: str
    reason: str | None
    until: Micros | None
    """None is never."""

    @property
    def end(self) -> float:
        """The end as a number that can be compared."""
        return inf if self.until is None else self.until

    def gate(self, now: Micros) -> Rule:
        """The rule that a blocked request meets."""
        wait = 0 if self.until is None else self.until - now
        return Rule(POLICY, action=Action.BLOCK, response=Response(_STATUS, self.reason, wait))


class BlockList:
    """All blocks. Immutable; a change makes a new list."""

    __slots__ = ("_api_keys", "_ranges", "_users", "size")

    def __init__(self, data: object) -> None:
        """Read the blocks as they are sent to all processes; `InvalidFields` lists everything that is wrong."""
        problems: list[Problem] = []
        self._users: dict[str, Block] = {}
        self._api_keys: dict[str, Block] = {}
        networks: dict[tuple[int, int, int], Block] = {}
        if not isinstance(data, list):
            problems.append(Problem((), f"expected a list of blocks, not {short_repr(data)}"))
            data = []
        for index, each in enumerate(data):
            found = _read(each, index, problems)
            if found is None:
                continue
            subject, name, block = found
            if subject == "network":
                _add(networks, name, block)
            else:
                _add(self._users if subject == "user" else self._api_keys, name, block)
        if problems:
            raise InvalidFields(problems)
        self.size = len(self._users) + len(self._api_keys) + len(networks)
        self._ranges = {
            version: _Ranges(
                [(first, last, block) for (kind, first, last), block in networks.items() if kind == version]
            )
            for version in (4, 6)
        }

    def find(self, request: Request, address: Address | None, now: Micros) -> Block | None:
        """The block that holds for a request now; of several, the one that ends last."""
        found: Block | None = None
        for block in (
            self._users.get(request.user) if request.user else None,
            self._api_keys.get(request.api_key) if request.api_key else None,
            self._ranges[address.version].find(address.number) if address else None,
        ):
            if block is not None and now < block.end and (found is None or found.end < block.end):
                found = block
        return found


class _Ranges:
    """Networks of one kind of addresses, cut into ranges that do not overlap, in order."""

    def __init__(self, networks: list[tuple[int, int, Block]]) -> None:
        """Networks contain one another or have nothing in common, so one pass over them in order is enough."""
        # Among those that start together the widest comes first.
        networks.sort(key=lambda each: (each[0], -each[1]))
        self._starts: list[int] = []
        self._blocks: list[Block | None] = []
        around: list[tuple[int, Block]] = []
        """The networks around the current address, the narrowest last: the first address after each, and its block."""
        for first, last, block in networks:
            self._close(around, first)
            holds = around[-1][1] if around and around[-1][1].end > block.end else block
            around.append((last + 1, holds))
            self._begin(first, holds)
        self._close(around, None)

    def _close(self, around: list[tuple[int, Block]], address: int | None) -> None:
        """Leave the networks that end before an address, or all."""
        while around and (address is None or around[-1][0] <= address):
            end, _ = around.pop()
            self._begin(end, around[-1][1] if around else None)

    def _begin(self, start: int, block: Block | None) -> None:
        if self._starts and self._starts[-1] == start:
            self._blocks[-1] = block
        else:
            self._starts.append(start)
            self._blocks.append(block)

    def find(self, number: int) -> Block | None:
        index = bisect_right(self._starts, number)
        return self._blocks[index - 1] if index else None


def _add(known: dict[Any, Block], name: object, block: Block) -> None:
    rival = known.get(name)
    if rival is None or rival.end < block.end:
        known[name] = block


def _read(data: object, index: int, problems: list[Problem]) -> tuple[str, Any, Block] | None:
    """What is blocked (its kind and its name), and the block."""
    before = len(problems)
    fields = Fields(data, (index,), problems, _KNOWN)
    until = fields.number("until", -1, 0, _LATEST)
    block = Block(fields.text("id", ""), fields.text("reason", None), None if until < 0 else round(until * SECOND))
    given = [subject for subject in _SUBJECTS if fields.has(subject)]
    if len(given) != 1:
        fields.problem("a block is about one user, one api_key or one network")
    subject = given[0] if given else ""
    name: object = fields.text(subject, "")
    if subject == "network" and isinstance(name, str) and name:
        try:
            name = parse_range(name)
        except ValueError as error:
            fields.problem(str(error), subject)
    return None if len(problems) > before else (subject, name, block)
