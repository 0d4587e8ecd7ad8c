"""The calls of one connection, from their header fields to their answers.

A call is a task only if its method has to wait, and only so many of one connection are at once: the others wait for
them, so that one connection cannot have all that a process may have in flight. A call that is reset while it waits is
never begun.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from headgate.edge.access import WHO_IS_ANSWERED
from headgate.edge.grpc.bounds import MAX_IN_FLIGHT, MAX_MESSAGE, MAX_STREAMS, WINDOW
from headgate.edge.grpc.methods import Delayed
from headgate.edge.grpc.statuses import Failed, GrpcStatus, failure_of
from headgate.errors import shown
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import END_STREAM, PADDED, Broken, ErrorCode, Frame
from headgate.protocols.http2.sender import Answering, refuse_content_type

if TYPE_CHECKING:
    from headgate.edge.grpc.budget import Budget
    from headgate.edge.grpc.header_blocks import HeaderFields
    from headgate.edge.grpc.methods import Method
    from headgate.edge.grpc.outbound import Outbound
    from headgate.edge.grpc.shared import Shared

_PREFIX: Final = 5
"""Of a message: whether it is compressed, and its size."""
_read_prefix: Final = Struct(">BI").unpack_from
_SMALL: Final = 256
"""A DATA frame with less than that, and more to follow, is worth no more than a control frame."""
_BEGUN_IN_A_ROW: Final = 16


class Streams:
    """The calls of one connection."""

    def __init__(self, shared: Shared, outbound: Outbound, budget: Budget) -> None:
        """Answers go to `outbound`; what a client does besides asking is on its `budget`."""
        self._shared = shared
        self._answers = shared.answers
        self._for_call = shared.answers.for_call
        self._outbound = outbound
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self.answering = Answering(outbound.write)
        self.last = 0
        """The last stream that was opened."""
        self.messages = 0
        """Bytes of messages that came and are not dealt with."""
        self.incomplete = 0
        """Of these, bytes of messages that are not whole."""
        self._room = MAX_STREAMS
        """At least so many more calls may be opened."""
        self._calls: dict[int, Method] = {}
        """Calls whose message is not all there yet, the oldest first."""
        self._pieces: dict[int, bytearray] = {}
        """What there is of those messages that come in several frames."""
        self._waiting: OrderedDict[int, tuple[Method, bytes, int]] = OrderedDict()
        """Calls that wait for others: their methods, messages, and how many bytes of the window they take."""
        self._tasks: dict[int, asyncio.Task[bytes | Delayed]] = {}
        self._delays: dict[int, asyncio.TimerHandle] = {}
        self._in_flight = 0
        """Tasks that are not done, those of calls that were reset among them."""
        self._is_beginning_later = False
        self._usual: tuple[HeaderFields | None, Method | None] = (None, None)
        """The header fields of the last call that was in order, and its method."""
        self._uncredited = 0
        """Bytes of DATA frames that the client was not given back."""
        self._is_leaving = False

    # Frames

    def headers(self, stream: int, flags: int, fields: HeaderFields) -> None:
        """A header block is all there: of a new call, or behind the message of one."""
        if stream <= self.last:
            self._budget.control()
            if flags & END_STREAM and stream in self._calls:
                self._piece(stream, b"", ended=True)
            return
        self.last = stream
        self._room -= 1
        if self._room < 0 and not self._has_room():
            self._reset(stream, ErrorCode.REFUSED_STREAM)
            return
        usual, method = self._usual
        if fields is not usual or method is None:
            method = self._method(stream, fields)
            if method is None:
                return
            self._usual = fields, method
        if self._for_call is not None:
            method = self._for_call(method, fields)
        if flags & END_STREAM:
            self._start(stream, method, b"", 0)
        else:
            self._calls[stream] = method

    def _has_room(self) -> bool:
        """Whether there may be another call, and how many more there may be for certain."""
        others = len(self._waiting) + len(self._delays)
        open_streams = len(self._calls) + len(self._tasks) + len(self.answering.waiting) + others
        self._room = 0 if self._is_leaving else MAX_STREAMS - open_streams - 1
        return self._room >= 0 and not self._is_leaving

    def data(self, frame: Frame) -> None:
        """A DATA frame has come."""
        _, flags, stream, content = frame
        size = len(content)
        self._uncredited += size
        if self._uncredited > WINDOW // 2:
            self._credit()
        method = self._calls.get(stream)
        if method is None:
            if stream > self.last or not stream:
                raise Broken(ErrorCode.PROTOCOL_ERROR)
            self._budget.control()
            return  # it was refused or answered already
        if flags & PADDED:
            content = frame.unpadded()
        if flags & END_STREAM and stream not in self._pieces:  # whole, as nearly all are
            del self._calls[stream]
            self._start(stream, method, content, size)
        else:
            self._piece(stream, content, ended=bool(flags & END_STREAM))

    def _piece(self, stream: int, content: bytes, *, ended: bool) -> None:
        if len(content) < _SMALL and not ended:
            self._budget.control()
        self.messages += len(content)
        self.incomplete += len(content)
        pieces = self._pieces.setdefault(stream, bytearray())
        pieces += content
        if len(pieces) > MAX_MESSAGE:
            self.drop(stream)
            sentence = f"a message has at most {MAX_MESSAGE} bytes here"
            self._fail(stream, Failed(GrpcStatus.RESOURCE_EXHAUSTED, sentence))
            self._reset(stream, ErrorCode.NO_ERROR)
        elif ended:
            method = self._calls.pop(stream)
            del self._pieces[stream]
            self.incomplete -= len(pieces)
            self._release(len(pieces))
            self._start(stream, method, bytes(pieces), len(pieces))

    def _release(self, size: int) -> None:
        """So many bytes of messages are not held any more."""
        self.messages -= size
        if self._uncredited > WINDOW // 2:
            self._credit()

    def _credit(self) -> None:
        """Let the client send as many bytes more as we do not hold."""
        if self._uncredited > WINDOW + frames.LARGEST:
            raise Broken(ErrorCode.FLOW_CONTROL_ERROR)
        done = self._uncredited - self.messages
        if done > WINDOW // 4:
            self._outbound.write(frames.window_update(0, done))
            self._uncredited -= done

    def _reset(self, stream: int, code: ErrorCode) -> None:
        self._outbound.write(frames.reset(stream, code))
        self._budget.reset()

    # Calls

    def _method(self, stream: int, fields: HeaderFields) -> Method | None:
        """The method of a call; None if it was refused."""
        path = fields.get(":path", "")
        method = self._answers.methods.get(path)
        if fields.get(":method") != "POST" or not fields.get("content-type", "").startswith("application/grpc"):
            self._outbound.write(refuse_content_type(stream))
            self._budget.refused += 1
            return None
        if method is None:
            self._fail(stream, Failed(GrpcStatus.UNIMPLEMENTED, f"there is no method {shown(path)} here"))
            return None
        if not self._answers.admits(fields):
            self._fail(stream, Failed(GrpcStatus.UNAUTHENTICATED, WHO_IS_ANSWERED))
            return None
        return method

    def _start(self, stream: int, method: Method, content: bytes, size: int) -> None:
        """The message is all there."""
        is_compressed, length = _read_prefix(content) if len(content) >= _PREFIX else (0, -1)
        if is_compressed:
            self._fail(stream, Failed(GrpcStatus.UNIMPLEMENTED, "compressed messages are not understood"))
        elif length != len(content) - _PREFIX:
            self._fail(stream, Failed(GrpcStatus.INVALID_ARGUMENT, "a call here has exactly one message"))
        elif self._in_flight >= MAX_IN_FLIGHT or self._waiting:
            self._waiting[stream] = method, content[_PREFIX:], size
            self.messages += size
        else:
            self._ask(stream, method, content[_PREFIX:], size)

    def _ask(self, stream: int, method: Method, message: bytes, size: int) -> None:
        """Answer at once, or as soon as there is an answer."""
        try:
            answer = method(message)
        except Exception as error:  # noqa: BLE001 (the caller and the log are told)
            self._fail(stream, failure_of(error))
            return
        if isinstance(answer, bytes):
            self._budget.answered += 1
            self.answering.answer(stream, answer)
        elif isinstance(answer, Delayed):
            self._delay(stream, answer)
        else:
            self.messages += size
            self._in_flight += 1
            self._tasks[stream] = task = self._loop.create_task(answer)
            task.add_done_callback(partial(self._waited, stream, size))

    def _waited(self, stream: int, size: int, task: asyncio.Task[bytes | Delayed]) -> None:
        """A method has come to its end."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._in_flight -= 1
        if self._outbound.is_ended:
            return
        self._release(size)
        if self._tasks.get(stream) is task:  # the client waits for it still
            del self._tasks[stream]
            if error is None:
                self._answered(stream, task.result())
            elif isinstance(error, Exception):
                self._fail(stream, failure_of(error))
        if self._waiting and not self._is_beginning_later:
            self.begin_waiting()
        self.end_if_done()

    def _answered(self, stream: int, answer: bytes | Delayed) -> None:
        if isinstance(answer, Delayed):
            self._delay(stream, answer)
        else:
            self._budget.answered += 1
            self.answering.answer(stream, answer)

    def _delay(self, stream: int, answer: Delayed) -> None:
        self._delays[stream] = self._loop.call_later(answer.seconds, self._delayed, stream, answer.message)

    def _delayed(self, stream: int, message: bytes) -> None:
        """An answer was held back for long enough."""
        del self._delays[stream]
        self._answered(stream, message)
        self.end_if_done()

    def _fail(self, stream: int, failed: Failed) -> None:
        self._budget.refused += 1
        self.answering.fail(stream, failed)

    def begin_waiting(self) -> None:
        """Begin calls that waited for others, a few at a time, while the client takes its answers."""
        for _ in range(_BEGUN_IN_A_ROW):
            if not self._waiting or self._in_flight >= MAX_IN_FLIGHT or self._outbound.is_blocked:
                return
            stream, (method, message, size) = self._waiting.popitem(last=False)
            self._release(size)
            self._ask(stream, method, message, size)
        if self._waiting and not self._is_beginning_later:
            self._is_beginning_later = True
            self._shared.turns.later(self._begin_later)

    def _begin_later(self) -> None:
        self._is_beginning_later = False
        self.begin_waiting()

    def is_open(self, stream: int) -> bool:
        """Whether an answer on this stream is still to come."""
        others = stream in self._waiting or stream in self._delays or stream in self.answering.waiting
        return others or stream in self._calls or stream in self._tasks

    def reset(self, stream: int) -> None:
        """The client has reset a call."""
        self.drop(stream)
        self._budget.reset()

    def drop(self, stream: int) -> None:
        """No client waits for this answer any more."""
        self._calls.pop(stream, None)
        pieces = self._pieces.pop(stream, b"")
        self.incomplete -= len(pieces)
        self._release(len(pieces))
        if stream in self._waiting:
            self._release(self._waiting.pop(stream)[2])
        self.answering.forget(stream)
        task = self._tasks.pop(stream, None)
        if task is not None:
            task.cancel()
        delay = self._delays.pop(stream, None)
        if delay is not None:
            delay.cancel()

    def reset_incomplete(self, up_to: int) -> None:
        """Give up the calls up to this stream whose messages are not whole."""
        for stream in [each for each in self._calls if each <= up_to]:
            self.drop(stream)
            self._reset(stream, ErrorCode.CANCEL)

    # The end

    @property
    def oldest_incomplete(self) -> int | None:
        """The first stream whose message is not whole."""
        return next(iter(self._calls), None)

    @property
    def is_deciding(self) -> bool:
        """Whether a call waits for us, and not for its client."""
        return bool(self._tasks or self._waiting or self._delays)

    def has_something_under_way(self) -> bool:
        """Whether a call has begun to come, is being answered, or its answer is still to be sent."""
        return bool(self._tasks or self._calls or self.answering.waiting or self._waiting or self._delays)

    def leave(self, code: ErrorCode) -> None:
        """Take no more calls, and close the connection once all are answered."""
        self._is_leaving = True
        self._room = 0
        self._outbound.write(frames.goaway(self.last, code))
        self.end_if_done()

    def end_if_done(self) -> None:
        """Close the connection if no more calls are taken and all are answered."""
        if self._is_leaving and not self.has_something_under_way() and not self._outbound.is_ended:
            self._outbound.close()

    def drop_not_begun(self) -> None:
        """Keep only the calls that are being decided: nothing more is read from the client."""
        for stream in (*self._calls, *self._waiting, *self._delays, *self.answering.waiting):
            self.drop(stream)

    def clear(self) -> None:
        """The connection is over: keep nothing."""
        for task in self._tasks.values():
            task.cancel()
        for delay in self._delays.values():
            delay.cancel()
        for kept in (self._calls, self._pieces, self._waiting, self._tasks, self._delays):
            kept.clear()
        self.messages = self.incomplete = 0
        self.answering = Answering(_ignore)


def _ignore(_data: bytes) -> None:
    """Nothing is sent any more."""
