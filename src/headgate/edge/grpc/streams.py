"""The gRPC calls of one connection, from their header fields to their responses.

A call becomes a task only if its method has to wait. The tasks of one connection are limited, and its other calls wait
for them: one connection cannot use all that a process may have in flight. A call that is reset while it waits is never
started.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.bounds import MAX_IN_FLIGHT, MAX_MESSAGE, MAX_STREAMS, WINDOW
from headgate.edge.grpc.methods import Delayed, grpc_error
from headgate.protocols.http2 import frames
from headgate.protocols.http2.early_ends import EarlyEnds
from headgate.protocols.http2.frames import END_STREAM, PADDED, ErrorCode, Frame, Http2Error
from headgate.protocols.http2.grpc_status import GrpcError, GrpcStatus, NotGrpc
from headgate.protocols.http2.hpack import are_of_a_request, are_trailers
from headgate.protocols.http2.receiver import ReceiveWindow
from headgate.protocols.http2.sender import MESSAGE_PREFIX, ResponseSender, refuse_content_type

if TYPE_CHECKING:
    from headgate.edge.grpc.connection import Output
    from headgate.edge.grpc.methods import Method
    from headgate.edge.grpc.server import Shared
    from headgate.protocols.http2.budget import Budget
    from headgate.protocols.http2.hpack import HeaderFields

_read_prefix: Final = Struct(">BI").unpack_from
_SMALL: Final = 256
"""A DATA frame with fewer bytes and more to follow counts as a control frame."""
_STARTED_IN_A_ROW: Final = 16


class Streams:
    """The calls of one connection."""

    def __init__(self, shared: Shared, output: Output, budget: Budget) -> None:
        """Responses go to `output`; what a client sends besides calls is on its `budget`."""
        self._shared = shared
        self._routes = shared.routes
        self._for_call = shared.routes.for_call
        self._output = output
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._early_ends = EarlyEnds(MAX_STREAMS)
        self.sender = ResponseSender(output.write, self._early_ends.streams)
        self.last = 0
        """The last stream that the client opened."""
        self.messages = 0
        """Bytes of messages that were received and not processed."""
        self.incomplete = 0
        """Of these, bytes of incomplete messages."""
        self._room = MAX_STREAMS
        """At least so many more calls may be opened."""
        self._calls: dict[int, Method] = {}
        """Calls whose message is incomplete, the oldest first."""
        self._pieces: dict[int, bytearray] = {}
        """What has arrived of messages in several frames."""
        self._waiting: OrderedDict[int, tuple[Method, bytes, int]] = OrderedDict()
        """Calls that wait for others: methods, messages, and how many bytes of the window they use."""
        self._tasks: dict[int, asyncio.Task[bytes | Delayed]] = {}
        self._delays: dict[int, asyncio.TimerHandle] = {}
        self._in_flight = 0
        """Tasks that are not done, including those of reset calls."""
        self._is_starting_later = False
        self._last_method: tuple[HeaderFields | None, Method | None] = (None, None)
        """The header fields of the last valid call, and its method."""
        self._window = ReceiveWindow(WINDOW, output.write)
        self._is_draining = False

    # Frames

    def headers(self, stream: int, flags: int, fields: HeaderFields) -> None:
        """A header block is complete: of a new call, or after the message of one."""
        if stream <= self.last:
            self._trailers(stream, flags, fields)
            return
        self.last = stream
        self._room -= 1
        if self._room < 0 and not self._has_room():
            self._reset(stream, ErrorCode.REFUSED_STREAM, flags)
            return
        usual, method = self._last_method
        if fields is not usual or method is None:
            method = self._method(stream, flags, fields)
            if method is None:
                return
            self._last_method = fields, method
        if self._for_call is not None:
            method = self._for_call(method, fields)
        if flags & END_STREAM:
            self._start(stream, method, b"", 0)
        else:
            self._calls[stream] = method

    def _trailers(self, stream: int, flags: int, fields: HeaderFields) -> None:
        """A header block after the message of a call, which ends it."""
        self._budget.control()
        if stream not in self._calls:
            self._early_ends.check(stream, END_STREAM)
        if not flags & END_STREAM or not are_trailers(fields):
            self.drop(stream)
            self._reset(stream, ErrorCode.PROTOCOL_ERROR, END_STREAM)
        elif stream in self._calls:
            self._piece(stream, b"", ended=True)

    def _has_room(self) -> bool:
        """Whether there may be another call; recounts how many more there may be."""
        others = len(self._waiting) + len(self._delays)
        open_streams = len(self._calls) + len(self._tasks) + len(self.sender.waiting) + others
        self._room = 0 if self._is_draining else MAX_STREAMS - open_streams - 1
        return self._room >= 0 and not self._is_draining

    def data(self, frame: Frame) -> None:
        """A DATA frame has arrived."""
        _, flags, stream, content = frame
        size = len(content)
        window = self._window
        window.uncredited += size
        if window.uncredited > window.half:
            window.credit(self.messages)
        method = self._calls.get(stream)
        if method is None:
            if stream > self.last or not stream:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR)
            self._budget.control()
            frame.unpadded()
            self._early_ends.check(stream, flags)
            return  # the call was refused already
        if flags & PADDED:
            content = frame.unpadded()
        if flags & END_STREAM and stream not in self._pieces:  # complete, as nearly all are
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
        if len(pieces) > MAX_MESSAGE:  # the method answers to the beginning
            beginning = self._calls[stream], bytes(pieces[MESSAGE_PREFIX:]), len(pieces)
            self.drop(stream)
            self._early_ends.add(stream, END_STREAM if ended else 0)
            self._wait(stream, *beginning)
            self.start_waiting()
        elif ended:
            method = self._calls.pop(stream)
            del self._pieces[stream]
            self.incomplete -= len(pieces)
            self._release(len(pieces))
            self._start(stream, method, bytes(pieces), len(pieces))

    def _release(self, size: int) -> None:
        """So many bytes of messages are no longer held."""
        self.messages -= size
        if self._window.uncredited > self._window.half:
            self._window.credit(self.messages)

    def _reset(self, stream: int, code: ErrorCode, flags: int = 0) -> None:
        self._early_ends.add(stream, flags)
        self._output.write(frames.reset(stream, code))
        self._budget.reset()

    # Calls

    def _method(self, stream: int, flags: int, fields: HeaderFields) -> Method | None:
        """The method of a call; None if the call was refused."""
        if not are_of_a_request(fields):
            self._reset(stream, ErrorCode.PROTOCOL_ERROR, flags)
            return None
        try:
            return self._routes.method(fields)
        except NotGrpc:
            self._output.write(refuse_content_type(stream))
            self._budget.refused += 1
        except GrpcError as error:
            self._fail(stream, error)
        self._early_ends.add(stream, flags)
        return None

    def _start(self, stream: int, method: Method, content: bytes, size: int) -> None:
        """The message is complete."""
        is_compressed, length = _read_prefix(content) if len(content) >= MESSAGE_PREFIX else (0, None)
        if is_compressed:
            self._fail(stream, GrpcError(GrpcStatus.UNIMPLEMENTED, "compressed messages are not supported"))
        elif length != len(content) - MESSAGE_PREFIX:
            self._fail(stream, GrpcError(GrpcStatus.INVALID_ARGUMENT, "a call must have exactly one message"))
        elif self._in_flight >= MAX_IN_FLIGHT or self._waiting:
            self._wait(stream, method, content[MESSAGE_PREFIX:], size)
        else:
            self._call(stream, method, content[MESSAGE_PREFIX:], size)

    def _wait(self, stream: int, method: Method, message: bytes, size: int) -> None:
        self._waiting[stream] = method, message, size
        self.messages += size

    def _call(self, stream: int, method: Method, message: bytes, size: int) -> None:
        """Call the method; answer at once, or once its task is done."""
        try:
            response = method(message)
        except Exception as error:  # noqa: BLE001 (the caller and the log get it)
            self._fail(stream, grpc_error(error))
            return
        if isinstance(response, (bytes, Delayed)):
            self._respond(stream, response)
        else:
            self.messages += size
            self._in_flight += 1
            self._tasks[stream] = task = self._loop.create_task(response)
            task.add_done_callback(partial(self._task_done, stream, size))

    def _task_done(self, stream: int, size: int, task: asyncio.Task[bytes | Delayed]) -> None:
        """The task of a call is done."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._in_flight -= 1
        if self._output.is_ended:
            return
        self._release(size)
        if self._tasks.get(stream) is task:  # the call was not reset
            del self._tasks[stream]
            if error is None:
                self._respond(stream, task.result())
            elif isinstance(error, Exception):
                self._fail(stream, grpc_error(error))
        if self._waiting and not self._is_starting_later:
            self.start_waiting()
        self.close_if_done()

    def _respond(self, stream: int, response: bytes | Delayed) -> None:
        if isinstance(response, Delayed):
            self._delay(stream, response)
        else:
            self._budget.answered += 1
            self.sender.send(stream, response)

    def _delay(self, stream: int, response: Delayed) -> None:
        self._delays[stream] = self._loop.call_later(response.seconds, self._delayed, stream, response.message)

    def _delayed(self, stream: int, message: bytes) -> None:
        """The delay of a response is over."""
        del self._delays[stream]
        self._respond(stream, message)
        self.close_if_done()

    def _fail(self, stream: int, error: GrpcError) -> None:
        self._budget.refused += 1
        self.sender.send_error(stream, error)

    def start_waiting(self) -> None:
        """Start calls that waited for others, a few at a time, while the client reads its responses."""
        for _ in range(_STARTED_IN_A_ROW):
            if not self._waiting or self._in_flight >= MAX_IN_FLIGHT or self._output.is_blocked:
                return
            stream, (method, message, size) = self._waiting.popitem(last=False)
            self._release(size)
            self._call(stream, method, message, size)
        if self._waiting and not self._is_starting_later:
            self._is_starting_later = True
            self._shared.time_slice.defer(self._start_later)

    def _start_later(self) -> None:
        self._is_starting_later = False
        self.start_waiting()

    def is_open(self, stream: int) -> bool:
        """Whether a response on this stream is still to come."""
        others = stream in self._waiting or stream in self._delays or stream in self.sender.waiting
        return others or stream in self._calls or stream in self._tasks

    def reset(self, stream: int) -> None:
        """The client has reset a call."""
        self._early_ends.forget(stream)
        self.drop(stream)
        self._budget.reset()

    def drop(self, stream: int) -> None:
        """Give up a call: its response is not needed any more."""
        self._calls.pop(stream, None)
        pieces = self._pieces.pop(stream, b"")
        self.incomplete -= len(pieces)
        self._release(len(pieces))
        if stream in self._waiting:
            self._release(self._waiting.pop(stream)[2])
        self.sender.drop(stream)
        task = self._tasks.pop(stream, None)
        if task is not None:
            task.cancel()
        delay = self._delays.pop(stream, None)
        if delay is not None:
            delay.cancel()

    def reset_incomplete(self, up_to: int) -> None:
        """Reset the calls up to this stream whose messages are incomplete."""
        for stream in [each for each in self._calls if each <= up_to]:
            self.drop(stream)
            self._reset(stream, ErrorCode.CANCEL)

    # Shutdown

    @property
    def oldest_incomplete(self) -> int | None:
        """The first stream whose message is incomplete."""
        return next(iter(self._calls), None)

    @property
    def is_deciding(self) -> bool:
        """Whether a call waits for the server, and not for its client."""
        return bool(self._tasks or self._waiting or self._delays)

    def is_in_flight(self) -> bool:
        """Whether a call has begun to arrive, is being answered, or its response is still to be sent."""
        return bool(self._tasks or self._calls or self.sender.waiting or self._waiting or self._delays)

    def drain(self, code: ErrorCode) -> None:
        """Take no more calls, and close the connection once all are answered."""
        self._is_draining = True
        self._room = 0
        self._output.write(frames.goaway(self.last, code))
        self.close_if_done()

    def close_if_done(self) -> None:
        """Close the connection if no more calls are taken and all are answered."""
        if self._is_draining and not self.is_in_flight() and not self._output.is_ended:
            self._output.close()

    def drop_not_started(self) -> None:
        """Keep only the calls that are being decided: nothing more is read from the client."""
        for stream in (*self._calls, *self._waiting, *self._delays, *self.sender.waiting):
            self.drop(stream)

    def clear(self) -> None:
        """The connection is closed: drop everything."""
        for task in self._tasks.values():
            task.cancel()
        for delay in self._delays.values():
            delay.cancel()
        for kept in (self._calls, self._pieces, self._waiting, self._tasks, self._delays):
            kept.clear()
        self.messages = self.incomplete = 0
        self.sender = ResponseSender(lambda _frames: None)
