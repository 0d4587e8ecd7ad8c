"""One HTTP/2 connection that carries gRPC calls of one message each (RFC 9113).

Frames come in, calls go to their methods, answers go out in one write for each turn of the event
loop; a call is a task only if its method has to wait. What is not needed for that is refused: push,
other methods than POST, streams of messages, compressed messages.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.edge.grpc import frames
from headgate.edge.grpc.answering import Answering, refuse_content_type
from headgate.edge.grpc.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    Broken,
    ErrorCode,
    Frame,
    Kind,
    Setting,
)
from headgate.edge.grpc.header_blocks import MOST_BYTES, HeaderBlocks
from headgate.edge.grpc.statuses import Failed, GrpcStatus, failure_of
from headgate.edge.http.access import WHO_IS_ANSWERED
from headgate.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.edge.door import Door
    from headgate.edge.grpc.header_blocks import HeaderFields
    from headgate.edge.grpc.methods import ForCall, Method

MOST_STREAMS: Final = 1_000
LARGEST_MESSAGE: Final = 65_536
_STREAM_WINDOW: Final = 2 * LARGEST_MESSAGE
_WINDOW: Final = 2**20
_USUAL_WINDOW: Final = 65_535
_SECONDS_FOR_PREFACE: Final = 10.0
_PREFIX: Final = 5
_MOST_CONTINUATIONS: Final = 64
"""Of a header block: empty ones would never make it too long."""
_BLOCKS: Final = frozenset({HEADERS, int(Kind.CONTINUATION)})
_GREETING: Final = frames.settings(
    {
        Setting.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
        Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
        Setting.MAX_HEADER_LIST_SIZE: MOST_BYTES,
    }
) + frames.window_update(0, _WINDOW - _USUAL_WINDOW)


class _Block(NamedTuple):
    """A header block that goes on in further frames."""

    stream: int
    flags: int
    content: bytearray


class Connection(asyncio.Protocol):
    """Talks to one client."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        door: Door[Connection],
        admits: Callable[[HeaderFields], bool],
        for_call: ForCall | None = None,
    ) -> None:
        """`admits` says by its headers if a call may be answered; `for_call` makes methods that know their headers."""
        self._methods = methods
        self._admits = admits
        self._for_call = for_call
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._blocks = HeaderBlocks()
        self._block: _Block | None = None
        self._continuations = 0
        self._last = 0
        self._calls: dict[int, Method] = {}
        """Calls whose message is not all there yet."""
        self._pieces: dict[int, bytearray] = {}
        """What there is of those messages that come in several frames."""
        self._usual: tuple[HeaderFields | None, Method | None] = (None, None)
        """The header fields of the last call that was in order, and its method."""
        self._tasks: dict[int, asyncio.Task[bytes]] = {}
        self._uncredited = 0
        self._out: list[bytes] = []
        self._answering = Answering(self._write)
        self._is_greeted = self._is_leaving = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is closed."""

    # What the event loop tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP has no other
        """Say what we can take."""
        self._transport = transport
        self._door.enter(self)
        self._write(_GREETING)
        self._impatience = self._loop.call_later(_SECONDS_FOR_PREFACE, transport.abort)

    def connection_lost(self, _error: Exception | None) -> None:
        """Nobody is there any more to be answered."""
        self._door.leave(self)
        self.closed.set_result(None)
        self._impatience.cancel()
        for task in self._tasks.values():
            task.cancel()

    def pause_writing(self) -> None:
        """Whoever does not take its answers is not listened to."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take in what came."""
        received = self._received
        received += data
        try:
            if not self._is_greeted and not self._greeted():
                return
            for frame in frames.cut(received):
                self._take(frame)
            self._answering.send_waiting()
            self._end_if_done()
        except Broken as broken:
            self._write(frames.goaway(self._last, broken.code))
            self._flush()
            self._transport.close()

    def _greeted(self) -> bool:
        if not PREFACE.startswith(self._received[: len(PREFACE)]):
            raise Broken(ErrorCode.PROTOCOL_ERROR)
        if len(self._received) < len(PREFACE):
            return False
        del self._received[: len(PREFACE)]
        self._is_greeted = True
        self._impatience.cancel()
        return True

    # Frames

    def _take(self, frame: Frame) -> None:
        kind = frame.kind
        if self._block is not None and (kind != Kind.CONTINUATION or frame.stream != self._block.stream):
            raise Broken(ErrorCode.PROTOCOL_ERROR)
        if kind == DATA:
            self._data(frame)
        elif kind in _BLOCKS:
            self._header_block(frame)
        elif kind == Kind.SETTINGS:
            self._settings(frame)
        elif kind == Kind.WINDOW_UPDATE:
            stream = frame.stream
            is_open = stream in self._calls or stream in self._tasks or stream in self._answering
            self._answering.grant(stream, frame.content, is_open=is_open)
        elif kind == Kind.PING:
            self._ping(frame)
        elif kind == Kind.RST_STREAM:
            self._drop(frame.stream)
        elif kind == Kind.PUSH_PROMISE:
            raise Broken(ErrorCode.PROTOCOL_ERROR)

    def _ping(self, frame: Frame) -> None:
        if len(frame.content) != 8:  # noqa: PLR2004 (RFC 9113, section 6.7)
            raise Broken(ErrorCode.FRAME_SIZE_ERROR)
        if not frame.flags & ACK:
            self._write(frames.frame(Kind.PING, ACK, 0, frame.content))

    def _settings(self, frame: Frame) -> None:
        if frame.flags & ACK:
            return
        for setting, value in frames.read_settings(frame.content):
            if setting == Setting.INITIAL_WINDOW_SIZE:
                self._answering.set_initial_window(value)
        self._write(frames.frame(Kind.SETTINGS, ACK, 0))

    def _header_block(self, frame: Frame) -> None:
        if frame.kind == HEADERS:
            if not frame.stream & 1:
                raise Broken(ErrorCode.PROTOCOL_ERROR)
            stream, flags, content = frame.stream, frame.flags, frame.unpadded()
            if not flags & END_HEADERS:
                self._block, self._continuations = _Block(stream, flags, bytearray(content)), 0
                return
        else:
            if self._block is None:
                raise Broken(ErrorCode.PROTOCOL_ERROR)
            self._block.content.extend(frame.content)
            self._continuations += 1
            if len(self._block.content) > MOST_BYTES or self._continuations > _MOST_CONTINUATIONS:
                raise Broken(ErrorCode.ENHANCE_YOUR_CALM)
            if not frame.flags & END_HEADERS:
                return
            stream, flags, content = self._block.stream, self._block.flags, bytes(self._block.content)
            self._block = None
        fields = self._blocks.read(content)  # even if nobody asked: later ones build on it
        if stream > self._last:
            self._last = stream
            self._begin(stream, fields, ended=bool(flags & END_STREAM))
        elif stream in self._calls and flags & END_STREAM:
            self._start(stream, bytes(self._pieces.get(stream, b"")))

    def _begin(self, stream: int, fields: HeaderFields, *, ended: bool) -> None:
        """A new call."""
        usual, method = self._usual
        if self._is_leaving or len(self._calls) + len(self._tasks) + len(self._answering) >= MOST_STREAMS:
            self._write(frames.reset(stream, ErrorCode.REFUSED_STREAM))
            return
        if fields is not usual or method is None:
            method = self._method(stream, fields)
            if method is None:
                return
            self._usual = fields, method
        self._calls[stream] = method if self._for_call is None else self._for_call(method, fields)
        if ended:
            self._start(stream, b"")

    def _method(self, stream: int, fields: HeaderFields) -> Method | None:
        """The method of a call; None if it was refused."""
        path = fields.get(":path", "")
        method = self._methods.get(path)
        if fields.get(":method") != "POST" or not fields.get("content-type", "").startswith("application/grpc"):
            self._write(refuse_content_type(stream))
            return None
        if method is None:
            self._answering.fail(stream, Failed(GrpcStatus.UNIMPLEMENTED, f"there is no method {shown(path)} here"))
            return None
        if not self._admits(fields):
            self._answering.fail(stream, Failed(GrpcStatus.UNAUTHENTICATED, WHO_IS_ANSWERED))
            return None
        return method

    def _data(self, frame: Frame) -> None:
        _, flags, stream, content = frame
        self._uncredited += len(content)
        if self._uncredited > _WINDOW // 2:
            self._write(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        if stream not in self._calls:
            if stream > self._last or not stream:
                raise Broken(ErrorCode.PROTOCOL_ERROR)
            return  # it was refused or answered already
        content = frame.unpadded()
        if flags & END_STREAM and stream not in self._pieces:  # whole, as nearly all are
            self._start(stream, content)
            return
        pieces = self._pieces.setdefault(stream, bytearray())
        pieces += content
        if len(pieces) > LARGEST_MESSAGE:
            self._drop(stream)
            sentence = f"a message has at most {LARGEST_MESSAGE} bytes here"
            self._answering.fail(stream, Failed(GrpcStatus.RESOURCE_EXHAUSTED, sentence))
            self._write(frames.reset(stream, ErrorCode.NO_ERROR))
        elif flags & END_STREAM:
            self._start(stream, bytes(pieces))

    # Calls

    def _start(self, stream: int, content: bytes) -> None:
        """The message is all there."""
        method = self._calls.pop(stream)
        self._pieces.pop(stream, None)
        if content[:1] == b"\x01":
            self._answering.fail(stream, Failed(GrpcStatus.UNIMPLEMENTED, "compressed messages are not understood"))
        elif len(content) < _PREFIX or int.from_bytes(content[1:_PREFIX], "big") != len(content) - _PREFIX:
            self._answering.fail(stream, Failed(GrpcStatus.INVALID_ARGUMENT, "a call here has exactly one message"))
        else:
            self._ask(stream, method, content[_PREFIX:])

    def _ask(self, stream: int, method: Method, message: bytes) -> None:
        """Answer at once, or as soon as there is an answer."""
        try:
            answer = method(message)
        except Exception as error:  # noqa: BLE001 (the caller and the log are told)
            self._answering.fail(stream, failure_of(error))
            return
        if isinstance(answer, bytes):
            self._answering.answer(stream, answer)
            return
        self._tasks[stream] = task = self._loop.create_task(answer)
        task.add_done_callback(partial(self._waited, stream))

    def _waited(self, stream: int, task: asyncio.Task[bytes]) -> None:
        """A method has come to its end."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._tasks.pop(stream, None) is not None:  # somebody waits for it still
            if error is None:
                self._answering.answer(stream, task.result())
            elif isinstance(error, Exception):
                self._answering.fail(stream, failure_of(error))
        self._end_if_done()

    def _drop(self, stream: int) -> None:
        """Nobody waits for an answer any more."""
        self._calls.pop(stream, None)
        self._pieces.pop(stream, None)
        self._answering.forget(stream)
        task = self._tasks.pop(stream, None)
        if task is not None:
            task.cancel()

    # The end

    def leave(self) -> None:
        """Take no more calls, and close once all are answered."""
        self._is_leaving = True
        self._write(frames.goaway(self._last, ErrorCode.NO_ERROR))
        self._end_if_done()

    def has_something_under_way(self) -> bool:
        """Whether a call has begun to come, is being answered, or its answer is still to be sent."""
        return bool(self._tasks or self._calls or self._answering)

    def _end_if_done(self) -> None:
        if self._is_leaving and not self.has_something_under_way():
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # Bytes

    def _write(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            if not self._transport.is_closing():
                self._transport.write(data)
