"""gRPC calls that are answered in threads: by `grpc.server`, and by `grpc.aio` for functions that are no coroutines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headgate.edge.frameworks import rpc
from headgate.edge.frameworks.admission import CURRENT, Admission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.edge.frameworks.gate import Answer, Gate
    from headgate.edge.frameworks.routes import Route
    from headgate.edge.frameworks.rpc import Call

_BAD_REQUEST = 400


class Statuses(NamedTuple):
    """The status codes of gRPC that calls end with."""

    refused: Any
    invalid: Any
    unavailable: Any
    unknown: Any

    def of(self, answer: Answer) -> tuple[Any, str]:
        """An answer without a verdict, as a status of gRPC."""
        if answer[0] == _BAD_REQUEST:
            return self.invalid, "the call cannot be understood by the rate limiter"
        return self.unavailable, "the call could not be checked; try again later"


class Decider(Protocol):
    """Decides calls for a thread, which waits for it."""

    @property
    def gate(self) -> Gate:
        """What knows headers and refusals."""

    def admit(self, route: Route, call: Call) -> Admission | Answer | None:
        """The verdict on a call, after its delay; an answer if there is none; None if nothing limits the call."""

    def answered(self, admission: Admission, outcome: rpc.Outcome) -> None:
        """Find out from the answer which limits count the call; see `deduct_when`."""

    def close(self, admission: Admission) -> None:
        """Count the settled cost and release slots."""


class ThreadContext:
    """A servicer's context that can say what was set, as contexts of `grpc.aio` cannot in threads."""

    def __init__(self, context: Any) -> None:  # noqa: ANN401 (gRPC's)
        """Everything but codes and trailing metadata is the context's own."""
        self._context = context
        self._code: Any = None
        self._trailing: tuple[tuple[str, str | bytes], ...] = ()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (gRPC's)
        """What the context has."""
        return getattr(self._context, name)

    def code(self) -> Any:  # noqa: ANN401 (gRPC's)
        """The status code that was set; None is OK."""
        return self._code

    def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """The trailing metadata that was set."""
        return self._trailing

    def set_code(self, code: Any) -> None:  # noqa: ANN401 (gRPC's)
        """See `grpc.ServicerContext`."""
        self._code = code
        self._context.set_code(code)

    def set_trailing_metadata(self, trailing_metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        """See `grpc.ServicerContext`."""
        self._trailing = tuple(trailing_metadata)
        self._context.set_trailing_metadata(self._trailing)

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> None:  # noqa: ANN401 (gRPC's)
        """See `grpc.ServicerContext`; raises. What ends the call has to be complete: nothing can be added later."""
        self._code = code
        self._context.abort(code, details, (*self._trailing, *trailing_metadata))


class ThreadedCalls:
    """Limits calls whose functions run in threads."""

    def __init__(self, decider: Decider, statuses: Statuses) -> None:
        """`statuses` are those of the gRPC library."""
        self._decider = decider
        self._statuses = statuses

    def answer(self, behaviour: Callable[..., Any], route: Route, call: Call) -> Any:  # noqa: ANN401 (gRPC's)
        """The message of a function that returns one."""
        found = self._admitted(route, call)
        if found is None:
            return behaviour(call.message, call.context)
        if not found.verdict.allowed:
            return self._refused(found, call)
        before = CURRENT.set(found)
        result = None
        try:
            result = behaviour(call.message, call.context)
        except BaseException:
            self._failed(found, call)
            raise
        else:
            self._decider.answered(found, rpc.Outcome(call.context.code(), result))
        finally:
            CURRENT.reset(before)
            self._finished(found, call)
        return result

    def stream(self, behaviour: Callable[..., Any], route: Route, call: Call) -> Iterator[Any]:
        """The messages of a function that yields them."""
        found = self._admitted(route, call)
        if found is None:
            yield from behaviour(call.message, call.context)
            return
        if not found.verdict.allowed:
            yield self._refused(found, call)
            return
        CURRENT.set(found)  # a stream runs in a context of its own
        try:
            yield from behaviour(call.message, call.context)
        except BaseException:
            self._failed(found, call)
            raise
        else:
            self._decider.answered(found, rpc.Outcome(call.context.code(), None))
        finally:
            self._finished(found, call)

    def _admitted(self, route: Route, call: Call) -> Admission | None:
        found = self._decider.admit(route, call)
        if found is None or isinstance(found, Admission):
            return found
        call.context.abort(*self._statuses.of(found))
        raise AssertionError  # it raises

    def _refused(self, found: Admission, call: Call) -> Any:  # noqa: ANN401 (the application's)
        gate = self._decider.gate
        call.context.set_trailing_metadata(rpc.metadata_of(gate.headers(found.verdict), found.verdict))
        on_refused = gate.on_refused(found)
        result = None if on_refused is None else on_refused(call, found.verdict)
        if result is None:
            call.context.abort(self._statuses.refused, found.verdict.problem()["message"])
        return result

    def _failed(self, found: Admission, call: Call) -> None:
        """A call that ended with an error may count too; an error without a status is UNKNOWN to its client."""
        self._decider.answered(found, rpc.Outcome(call.context.code() or self._statuses.unknown, None))

    def _finished(self, found: Admission, call: Call) -> None:
        more = rpc.metadata_of(self._decider.gate.headers(found.verdict), found.verdict)
        call.context.set_trailing_metadata((*(call.context.trailing_metadata() or ()), *more))
        self._decider.close(found)
