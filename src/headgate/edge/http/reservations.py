"""`/v1/reserve`, `/v1/settle` and `/v1/release`: amounts taken in advance, settled by whichever process is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.request import Request
from headgate.dataplane import settling
from headgate.dataplane.bare_keys import span
from headgate.edge.http import answers
from headgate.edge.http.reservation_body import read_release, read_reserve, read_settle

if TYPE_CHECKING:
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.answers import Answer
    from headgate.edge.http.seal import Seal


class Reservations:
    """Remembers nothing: all there is to know of a reservation is in the text that its caller keeps."""

    def __init__(self, limiter: Limiter, identity: Identity, seal: Seal) -> None:
        """`identity` finds what is on record about who reserves."""
        self._limiter = limiter
        self._identity = identity
        self._seal = seal

    async def reserve(self, body: bytes) -> Answer:
        """Take an amount now, by the rules for a request or of a key's limit."""
        subject, limit, cost, algorithm, ttl = read_reserve(body)
        if isinstance(subject, Request):
            subject = await self._identity.stated(subject)
        taken = await self._limiter.reserve(subject, limit, cost, ttl=ttl, algorithm=algorithm).take()
        verdict = taken.verdict
        if not verdict.allowed:
            return answers.for_verdict(verdict)
        held = settling.reserved(verdict, span(ttl))
        return answers.for_reservation(verdict, self._seal.write(held), held.amount)

    async def settle(self, body: bytes) -> Answer:
        """Book what was really used, once."""
        text, actual = (asked := read_settle(body)).reservation, asked.actual
        held = self._seal.read(text)
        settled = await settling.settle(self._limiter.store, held, actual)
        used = held.amount if actual is None else actual
        return answers.for_outcome({"settled": settled, "reserved": held.amount, "actual": used})

    async def release(self, body: bytes) -> Answer:
        """Give everything back, as if it had never been taken, once."""
        held = self._seal.read(read_release(body))
        released = await settling.settle(self._limiter.store, held, 0)
        return answers.for_outcome({"released": released, "reserved": held.amount})
