"""How long a client may take for what it has begun. Looked at once a second, so that calls cost no time for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.protocols.http2.frames import Broken, ErrorCode, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.edge.grpc.bounds import Bounds
    from headgate.edge.grpc.streams import Streams


class _Unchanged:
    """For how long a value has been the same; None is nothing to wait for."""

    __slots__ = ("_since", "_value")

    def __init__(self) -> None:
        self._value: int | None = None
        self._since = 0.0

    def seconds(self, value: int | None, now: float) -> float:
        if value is None or value != self._value:
            self._value, self._since = value, now
            return 0.0
        return now - self._since


class Patience:
    """With one client."""

    def __init__(self, bounds: Bounds, now: float) -> None:
        """The client has connected just now."""
        self._bounds = bounds
        self._since = now
        self._idle_since = now
        self._last_call = self._ended_calls = 0
        self._ended_since = now
        self._ended: float | None = None
        self._incomplete_up_to = 0
        self._incomplete_since: float | None = None
        self._frame, self._answer, self._blocked = _Unchanged(), _Unchanged(), _Unchanged()

    def is_preface_late(self, now: float) -> bool:
        """Whether the preface should have come."""
        return now - self._since > self._bounds.preface

    def has_lingered(self, now: float) -> bool:
        """Whether a client that was told to go has had time to do so."""
        if self._ended is None:
            self._ended = now
        return now - self._ended > self._bounds.linger

    def note_ended(self, calls: int, now: float) -> None:
        """So many calls were answered or refused by now."""
        if calls != self._ended_calls:
            self._ended_calls, self._ended_since = calls, now

    def idle_since(self, ended: int, clock: Callable[[], float]) -> float:
        """Since when no call has come to its end, by the last look and by calls since then."""
        return self._ended_since if ended == self._ended_calls else clock()

    def check(self, now: float, streams: Streams, *, is_partial: bool, progress: int) -> None:
        """See whether frames, messages and answers go on; `Broken` if one of them does not."""
        bounds = self._bounds
        if streams.last != self._last_call or streams.has_something_under_way():
            self._last_call, self._idle_since = streams.last, now
        elif now - self._idle_since > (bounds.idle if streams.last else bounds.first_call):
            raise Broken(ErrorCode.NO_ERROR, Reason.IDLE_TIMEOUT, f"no call for {now - self._idle_since:.0f} s")
        if self._frame.seconds(progress if is_partial else None, now) > bounds.incomplete:
            figures = f"no whole frame for {bounds.incomplete:g} s"
            raise Broken(ErrorCode.ENHANCE_YOUR_CALM, Reason.INCOMPLETE_TIMEOUT, figures)
        if self._answer.seconds(next(iter(streams.answering.waiting), None), now) > bounds.unread:
            figures = f"{len(streams.answering.waiting)} answers wait, one for {bounds.unread:g} s"
            raise Broken(ErrorCode.ENHANCE_YOUR_CALM, Reason.WRITE_TIMEOUT, figures)
        self._give_up_incomplete(now, streams)

    def _give_up_incomplete(self, now: float, streams: Streams) -> None:
        """Reset calls whose message has not come for once to twice the time it may take."""
        if streams.oldest_incomplete is None:
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since, self._incomplete_up_to = now, streams.last
        elif now - self._incomplete_since > self._bounds.incomplete:
            streams.reset_incomplete(self._incomplete_up_to)
            self._incomplete_since, self._incomplete_up_to = now, streams.last

    def is_unread(self, now: float, *, is_blocked: bool) -> bool:
        """Whether the client has read nothing for too long."""
        return self._blocked.seconds(0 if is_blocked else None, now) > self._bounds.unread
