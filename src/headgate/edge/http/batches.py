"""`/v1/check:batch`: many checks in one request, carried out a slice at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.core.path import MAX_PATH, is_too_long
from headgate.edge.http import answers
from headgate.edge.http.bodies import read_checks
from headgate.edge.slices import Slices
from headgate.errors import InvalidRequest, Overloaded

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any

    from headgate.core.request import Request
    from headgate.core.verdict import Verdict
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.answers import Answer

_SLICE: Final = 64
"""Checks in flight of one batch: two milliseconds, and as many as a store takes in one call."""
_AT_ONCE: Final = 8
"""A batch of so many waits for no turn."""


class Batches:
    """Decides batches. All that one slice asks goes to the store together."""

    def __init__(self, limiter: Limiter, identity: Identity) -> None:
        """`identity` finds what is on record about callers."""
        self._limiter = limiter
        self._identity = identity
        self._slices = Slices()

    async def check(self, body: bytes) -> Answer:
        """Decide each check by itself. Those that were shed are marked; where nothing was counted, all are shed."""
        checks = read_checks(body)
        requests = [request for request, _ in checks]
        self._refuse_unsound(requests)  # before anything is counted
        if self._identity.records is not None:
            requests = await self._known(requests)
        written: list[bytes] = []
        has_counted = False
        for start in range(0, len(checks), _SLICE):
            if len(checks) > _AT_ONCE:
                await self._slices.turn()
            asked = zip(requests[start : start + _SLICE], checks[start : start + _SLICE], strict=True)
            decided = await self._decided([self._limiter.check(request, cost) for request, (_, cost) in asked])
            shed = [each for each in decided if isinstance(each, Overloaded)]
            has_counted = has_counted or len(shed) < len(decided)
            if not has_counted:
                raise shed[0]
            written += map(answers.member_of_batch, decided)
        return answers.for_batch(written)

    async def _decided(self, deciding: list[Coroutine[Any, Any, Verdict]]) -> list[Verdict | Overloaded]:
        decided: list[Verdict | Overloaded] = []
        for each in await asyncio.gather(*deciding, return_exceptions=True):
            if isinstance(each, BaseException) and not isinstance(each, Overloaded):
                raise each
            decided.append(each)
        return decided

    async def _known(self, requests: Sequence[Request]) -> list[Request]:
        asking: list[asyncio.Task[Request]] = []
        for start in range(0, len(requests), _SLICE):
            if len(requests) > _AT_ONCE:
                await self._slices.turn()
            asking += [
                asyncio.create_task(self._identity.stated(request)) for request in requests[start : start + _SLICE]
            ]
        return await asyncio.gather(*asking)

    def _refuse_unsound(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.ip:
                self._limiter.snapshots.current.address(request.ip)
            if request.path is not None and is_too_long(request.path):
                msg = f"a path has at most {MAX_PATH} characters"
                raise InvalidRequest(msg)
