"""How long a server has been silent, in time that this process was awake to see.

A plain timeout says little: it also runs while this process is stopped, waits for a CPU, or is busy with other work,
and meanwhile the reply lies in the socket. So silence is counted from check to check, and each check adds at most the
time until it was due: a process that stood still for a second was late for one check, and adds one pause. Time for
which this process waited for a CPU does not count either, because a server beside it waits as well. But a share of the
pause always counts, so a dead server is found on any machine.

With a pause of 10 ms, no slack and a share of 0.1: a check on time adds 10 ms, one that is 5 s late adds 10 ms, one
that is on time after 6 ms without a CPU adds 4 ms, and one after 5 s without a CPU adds 1 ms.
"""

from __future__ import annotations


class Silence:
    """The silence of one server that owes a reply. Time is an argument, in seconds of a clock that never steps back.

    The caller looks into the socket: unread data counts as a reply.
    """

    __slots__ = ("_cpu_wait", "_min_share", "checked_at", "clock", "lasts", "slack")

    def __init__(self, min_share: float, slack: float = 0.0) -> None:
        """`min_share` of a pause always counts; a check may be `slack` seconds late, and this time counts too."""
        self._min_share = min_share
        self._cpu_wait = 0.0
        self.slack = slack
        self.clock = 0.0
        """Seconds that this process was awake, silent or not."""
        self.lasts = 0.0
        """Seconds of silence."""
        self.checked_at = 0.0
        """When the last check was."""

    def begin(self, now: float, cpu_wait: float) -> None:
        """The server has replied, or owes a reply only from now on; `cpu_wait` is the time without a CPU so far."""
        self.checked_at, self._cpu_wait, self.lasts = now, cpu_wait, 0.0

    def advance(self, now: float, cpu_wait: float, pause: float, last_reply_at: float = -1.0) -> None:
        """Count the time since the last check, which was due after `pause`; a reply since then ends the silence."""
        awake = min(now - self.checked_at, pause + self.slack) - (cpu_wait - self._cpu_wait)
        awake = max(awake, self._min_share * pause)
        self.clock += awake
        has_replied = last_reply_at >= self.checked_at
        self.lasts = min(awake, now - last_reply_at) if has_replied else self.lasts + awake
        self.checked_at, self._cpu_wait = now, cpu_wait
