"""What a process holds of one counter of another region, and who asks for more; see `borrowed`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.core.denial import is_same_meter
from headgate.core.ids import new_id

if TYPE_CHECKING:
    from headgate.core.borrow import Grant
    from headgate.core.decision import Decision, Hit
    from headgate.core.meter import Meter
    from headgate.core.units import Micros
    from headgate.errors import HeadgateError


class BorrowedBlock:
    """What is held of one counter."""

    __slots__ = (
        "ahead",
        "asked_at",
        "ended",
        "failed",
        "failures",
        "grants",
        "left_at_home",
        "lock",
        "meter",
        "refusals",
        "refused",
        "renewing",
        "reset_at",
        "size",
        "spent",
        "used_at",
        "users",
    )

    def __init__(self, meter: Meter, now: Micros) -> None:
        self.meter = meter
        self.grants: list[Grant] = []
        self.ended: list[Grant] = []
        """What was not spent in time, and is to be given back."""
        self.spent = 0
        """Since home was asked last."""
        self.asked_at = self.used_at = now
        self.size = 0
        self.left_at_home = 0
        self.reset_at = now
        self.refused: tuple[Hit, Decision] | None = None
        """What home refused the last time."""
        self.refusals = 0
        self.failed: HeadgateError | None = None
        """Why home gave no answer the last time."""
        self.failures = 0
        self.lock = asyncio.Lock()
        self.renewing: asyncio.Task[Any] | None = None
        self.users = 0
        """Hits that are being taken, and blocks that are being asked for."""
        self.ahead = 0
        """By how much the clock at home is ahead of this process's."""

    def is_in_use(self) -> bool:
        """Whether something is being taken or borrowed."""
        return self.users > 0 or self.is_renewing()

    def is_renewing(self) -> bool:
        """Whether the next block is on its way."""
        return self.renewing is not None and not self.renewing.done()

    def refused_same(self, hit: Hit, since: int) -> Decision | None:
        """The last refusal of home, if it is later than the first `since`, and for as much of the same limit."""
        if self.refused is None or self.refusals <= since:
            return None
        refused, decision = self.refused
        return decision if refused.cost == hit.cost and is_same_meter(refused.meter, hit.meter) else None

    def left(self, now: Micros) -> int:
        """What can be spent now."""
        self.ended += [grant for grant in self.grants if grant.ends <= now]
        self.grants = [grant for grant in self.grants if grant.ends > now]
        return sum(grant.left for grant in self.grants)

    def spend(self, cost: int) -> list[Grant]:
        """Take units, of the oldest grants first."""
        self.spent += cost
        taken: list[Grant] = []
        kept: list[Grant] = []
        for grant in self.grants:
            units = min(cost, grant.left)
            cost -= units
            if units:
                taken.append(grant._replace(left=units, id=new_id()))
            if grant.left > units:
                kept.append(grant._replace(left=grant.left - units))
        self.grants = kept
        return taken

    def withdraw(self) -> None:
        """Spend nothing more of what is held: it is to be given back."""
        self.ended += self.grants
        self.grants = []
        self.size = 0
