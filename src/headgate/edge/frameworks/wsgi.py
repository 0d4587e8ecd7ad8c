"""The WSGI middleware."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.calls import decoded_path
from headgate.edge.frameworks.routes import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping
    from typing import TypeAlias

    from headgate.edge.frameworks.calls import Who
    from headgate.edge.frameworks.without_loop import ThreadGate

    Environ: TypeAlias = MutableMapping[str, Any]
    Start: TypeAlias = Callable[..., Any]
    App: TypeAlias = Callable[[Environ, Start], Iterable[bytes]]
    Identify: TypeAlias = Callable[[Environ], Who]
    Cost: TypeAlias = Callable[[Environ], int | None]

KEY: Final = "headgate"
"""Where an environment has its `Admission`."""


class WsgiGate:
    """Stands before a WSGI application."""

    def __init__(self, app: App, threads: ThreadGate, identify: Identify | None, cost: Cost | None) -> None:
        """`identify` and `cost` get the environment."""
        self.app = app
        self._threads = threads
        self._identify = identify
        self._cost = cost

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Answer, or let the application do it."""
        identify, cost = self._identify, self._cost
        asked = self._threads.ask(
            environ,
            decoded_path(environ),
            NOWHERE,
            None if identify is None else lambda: identify(environ),
            None if cost is None else lambda: cost(environ),
        )
        if asked is None:
            return self.app(environ, start_response)
        if not isinstance(asked, Admission):
            status, headers, body = asked
            start_response(status_line(status), headers)
            return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]
        environ[KEY] = asked
        lines = self._threads.gate.headers(asked.verdict)

        def start(status: str, headers: list[tuple[str, str]], *exc_info: object) -> Any:  # noqa: ANN401 (the server's)
            return start_response(status, [*headers, *lines], *exc_info)

        try:
            return _Closing(self.app(environ, start), lambda: self._threads.close(asked))
        except BaseException:
            self._threads.close(asked)
            raise


class _Closing:
    """A body, and what is done once it has been sent."""

    def __init__(self, body: Iterable[bytes], then: Callable[[], None]) -> None:
        self._body = body
        self._then = then

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """As PEP 3333 asks for: also if sending broke off."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._then()


def status_line(status: int) -> str:
    """``429 Too Many Requests``."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"
