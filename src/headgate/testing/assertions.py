"""Assertions about the limits of an application, through the test client of its framework.

| client                                  | how a call is sent                    | with await |
| httpx, Starlette, FastAPI, Litestar     | ``client.request("GET", "/x")``       | if it is an `AsyncClient` |
| Flask                                   | ``client.open("/x", method="GET")``   | |
| Django                                  | ``client.generic("GET", "/x")``       | if it is an `AsyncClient` |
| aiohttp                                 | ``client.request("GET", "/x")``       | yes |
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

_METHODS: Final = ("request", "open", "generic")
_REFUSED: Final = 429


def assert_limited(
    client: Any,  # noqa: ANN401 (one of many frameworks)
    method: str,
    path: str,
    *,
    after: int,
    status: int = _REFUSED,
    **call: Any,  # noqa: ANN401 (whatever the client takes)
) -> Any:  # noqa: ANN401 (the client's response, or an awaitable of it)
    """Call a path `after` times, which must not be refused, and once more, which must be; returns that last response.

    `await` it if the client is asynchronous. A refusal has `status` and, unless it is for ever, a ``Retry-After``
    header. `call` goes to the client with every call, such as ``headers=…``.
    """
    __tracebackhide__ = True
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        msg = f"after is how many calls must pass, a whole number, not {after!r}"
        raise ValueError(msg)
    send = _sender(client)
    steps = _steps(f"{method} {path}", after, status)
    response = _send(send, method, path, call)
    return (
        _awaited(steps, response, send, method, path, call)
        if isawaitable(response)
        else _plain(steps, response, send, method, path, call)
    )


def _plain(steps: Generator[None, Any, None], response: Any, *sending: Any) -> Any:  # noqa: ANN401 (as above)
    __tracebackhide__ = True
    next(steps)
    while not _is_last(steps, response):
        response = _send(*sending)
    return response


async def _awaited(steps: Generator[None, Any, None], sent: Awaitable[Any], *sending: Any) -> Any:  # noqa: ANN401 (as above)
    __tracebackhide__ = True
    next(steps)
    response = await sent
    while not _is_last(steps, response):
        response = await _send(*sending)
    return response


def _is_last(steps: Generator[None, Any, None], response: Any) -> bool:  # noqa: ANN401 (as above)
    __tracebackhide__ = True
    try:
        steps.send(response)
    except StopIteration:
        return True
    return False


def _steps(call: str, after: int, status: int) -> Generator[None, Any, None]:
    """Takes the responses one by one, and ends with the refusal."""
    __tracebackhide__ = True
    for number in range(1, after + 1):
        response = yield
        assert _status(response) != status, f"{call} was refused by call {number}, but {after} must pass"
    response = yield
    found = _status(response)
    assert found == status, f"{call} was not refused after {after} calls: the status is {found}, not {status}"
    assert "Retry-After" in response.headers, f"{call} was refused without a Retry-After header"


def _send(send: Any, method: str, path: str, call: dict[str, Any]) -> Any:  # noqa: ANN401 (as above)
    return send(path, method=method, **call) if send.__name__ == "open" else send(method, path, **call)


def _sender(client: Any) -> Any:  # noqa: ANN401 (as above)
    # Flask's client has `open` and no `request`; Django's has `request`, which takes the environment of a call.
    names = ("generic",) if hasattr(client, "generic") else _METHODS
    for name in names:
        if hasattr(client, name):
            return getattr(client, name)
    msg = f"{type(client).__name__} is no test client of a known framework: it has none of {', '.join(_METHODS)}"
    raise TypeError(msg)


def _status(response: Any) -> int:  # noqa: ANN401 (as above)
    found: int = response.status_code if hasattr(response, "status_code") else response.status  # aiohttp
    return found
