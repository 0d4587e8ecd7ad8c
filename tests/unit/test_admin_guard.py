"""What callers of the admin API can use before their token is known to be valid."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headgate.edge.admin.middleware import Frame, Guard
from headgate.edge.refused_sign_ins import RefusedSignIns

if TYPE_CHECKING:
    import pytest
    from starlette.types import Receive, Scope, Send

_GOOD = (b"authorization", b"Bearer good")
_GUESS = (b"authorization", b"Bearer guess")


class _Access:
    def is_known(self, token: str) -> bool:
        return token == "good"  # noqa: S105 (a test's)


class _Routes:
    """An application that answers when the test lets it."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.in_flight = self.calls = 0

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        self.calls += 1
        self.in_flight += 1
        await self.goes_on.wait()
        self.in_flight -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def _status(app: Frame, path: str = "/v1/rules", *headers: tuple[bytes, bytes], query: bytes = b"") -> int:
    sent: list[Any] = []

    async def receive() -> Any:  # noqa: ANN401 (ASGI)
        raise AssertionError

    async def send(message: Any) -> None:  # noqa: ANN401 (ASGI)
        sent.append(message)

    parts = SimpleNamespace(access=_Access(), refused=RefusedSignIns("admin"))
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": list(headers),
        "app": SimpleNamespace(state=SimpleNamespace(parts=parts)),
    }
    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


def test_calls_without_a_token_are_refused_before_anything_is_parsed() -> None:
    """A call without a token does not reach the application, and its body is not read."""

    async def run() -> None:
        routes = _Routes()
        app = Frame(Guard(routes))
        malformed = [(b"authorization", b"Basic x")], [(b"authorization", b"Bearer " + b"x" * 2_000)], [_GOOD, _GOOD]
        assert [await _status(app, "/v1/rules", *headers) for headers in ([], *malformed)] == [401] * 4
        assert await _status(app, "/" + "%41" * 20_000) == 400
        assert await _status(app, "/v1/rules", _GOOD, query=b"a&" * 20_000) == 400
        assert routes.calls == 0

    asyncio.run(run())


def test_guessed_tokens_do_not_use_up_the_capacity_of_known_ones() -> None:
    """Only a few guessed tokens are looked up at once, a few more wait, and the rest is refused; known tokens pass."""

    async def run() -> None:
        routes = _Routes()
        app = Frame(Guard(routes))
        guessing = [asyncio.create_task(_status(app, "/v1/rules", _GUESS)) for _ in range(500)]
        asking = [asyncio.create_task(_status(app, "/livez")) for _ in range(500)]
        # There is no event for the begin or end of a call.
        while len([task for task in (*guessing, *asking) if task.done()]) < 2 * (500 - 8 - 128):  # noqa: ASYNC110 (see above)
            await asyncio.sleep(0)
        assert routes.in_flight == 2 * 8
        good = asyncio.create_task(_status(app, "/v1/rules", _GOOD))
        while routes.in_flight == 2 * 8:  # noqa: ASYNC110 (see above)
            await asyncio.sleep(0)
        routes.goes_on.set()
        assert await good == 200
        for tasks in (guessing, asking):
            statuses = await asyncio.gather(*tasks)
            assert {status: statuses.count(status) for status in statuses} == {200: 8 + 128, 503: 500 - 8 - 128}

    asyncio.run(run())


def test_calls_begin_one_in_a_turn() -> None:
    """However many calls arrive together, other work of the loop runs between them."""

    async def run() -> None:
        routes = _Routes()
        routes.goes_on.set()
        app = Frame(Guard(routes))
        asking = [asyncio.create_task(_status(app, "/v1/rules", _GOOD)) for _ in range(20)]
        seen = [0]
        while routes.calls < 20:
            await asyncio.sleep(0)
            seen.append(routes.calls)
        assert max(after - before for before, after in pairwise(seen)) == 1
        await asyncio.gather(*asking)

    asyncio.run(run())


def test_a_call_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """While calls that do not end use all capacity, the others are refused after seconds."""
    monkeypatch.setattr("headgate.edge.admin.middleware.InFlightLimit.__init__.__defaults__", (0.01,))

    async def run() -> None:
        routes = _Routes()
        app = Frame(Guard(routes))
        holding = [asyncio.create_task(_status(app, "/readyz")) for _ in range(8)]
        while routes.in_flight < 8:  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0)
        assert await _status(app, "/readyz") == 503
        routes.goes_on.set()
        assert await asyncio.gather(*holding) == [200] * 8
        assert await _status(app, "/readyz") == 200

    asyncio.run(run())
