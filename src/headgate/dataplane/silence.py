"""How long a server has been silent, in time during which this process was looking.

A timeout of its own says little: it also runs while this process is stopped, starved of processor
time, or busy with other work, and the reply lies in the socket meanwhile. So silence is counted
look by look. Each look adds the time since the one before, but never more than one interval, and only
if the socket has nothing to read at that moment. A process that stood still for a second has looked
once, and adds one interval. Time for which the machine kept this process waiting for a processor does not
count either, because a server beside it waits as well; but a tenth of an interval always does, so a
silent server is found out on any machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.core.units import Micros

_MIN_SHARE: Final = 10
"""One part in so many of an interval counts at each look, however busy the machine is."""


class Silence:
    """The silence of one server while it owes a reply. Time is an argument, of a clock that never steps back."""

    def __init__(self, interval: Micros) -> None:
        """`interval` is the time between two looks, if nothing holds this process up."""
        self._interval = interval
        self._looked: Micros = 0
        self._kept: Micros = 0
        self.lasts: Micros = 0
        """How long it has lasted."""

    def broken(self, now: Micros, kept: Micros) -> None:
        """The server has replied, or owes something only from now on.

        `kept` is how long this process was kept waiting for a processor so far.
        """
        self._looked, self._kept = now, kept
        self.lasts = 0

    def look(self, now: Micros, kept: Micros, *, has_unread: bool) -> None:
        """Count the time since the last look, unless something lies in the socket, which is as good as a reply."""
        if has_unread:
            self.broken(now, kept)
            return
        awake = now - self._looked - (kept - self._kept)
        self.lasts += min(max(awake, self._interval // _MIN_SHARE), self._interval)
        self._looked, self._kept = now, kept
