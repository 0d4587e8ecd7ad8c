"""One limited view, in several frameworks: ``python -m bench.route_apps FRAMEWORK LIMITER URL AMOUNT``.

Reads how many calls to make, makes them, says how many were answered with 200 and how many seconds of the processor
they took; and so on. Applications with an event loop get 64 calls at a time, those with threads one after the other.
"""

from __future__ import annotations

import asyncio
import atexit
import io
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop
from bench.route_django import django_app, forget

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 64
_OK = 200


def fastapi_app(name: str, url: str, amount: int) -> Any:  # noqa: ANN401 (an ASGI application)
    """The view of an item, limited for each address."""
    from fastapi import Depends, FastAPI  # noqa: PLC0415 (each process has one framework)

    app = FastAPI(openapi_url=None)
    if name in {"plain", "headgate", "headgate_bare", "fastapi_limiter"}:
        limits = []
        if name == "fastapi_limiter":
            from fastapi_limiter.depends import RateLimiter  # noqa: PLC0415 (a peer)
            from pyrate_limiter import Duration, Limiter, Rate  # noqa: PLC0415 (a peer)

            limits = [Depends(RateLimiter(limiter=Limiter(Rate(amount, Duration.DAY))))]

        async def view(item: str) -> dict[str, str]:
            return {"item": item}

        if name.startswith("headgate"):
            import headgate.fastapi  # noqa: PLC0415 (ours)

            headgate.fastapi.setup(app, _store(url), headers="none" if name.endswith("bare") else "all")
            view = headgate.fastapi.rate_limit(f"{amount}/day", per="ip")(view)
        app.get("/items/{item}", dependencies=limits)(view)
        return app

    import slowapi  # noqa: PLC0415 (a peer)
    import slowapi.errors  # noqa: PLC0415 (a peer)
    import slowapi.util  # noqa: PLC0415 (a peer)
    from starlette.requests import Request  # noqa: PLC0415 (of the framework)
    from starlette.responses import Response  # noqa: PLC0415 (of the framework)

    limiter = slowapi.Limiter(
        key_func=slowapi.util.get_remote_address,
        key_style="endpoint",  # one counter for all items, as the others have it
        storage_uri="memory://" if url == "memory" else url,
        headers_enabled=not name.endswith("bare"),
    )
    app.state.limiter = limiter
    app.add_exception_handler(slowapi.errors.RateLimitExceeded, slowapi._rate_limit_exceeded_handler)  # noqa: SLF001 (documented so)

    async def limited(request: Request, response: Response, item: str) -> dict[str, str]:  # noqa: ARG001 (slowapi looks for them)
        return {"item": item}

    limited.__annotations__ = {"request": Request, "response": Response, "item": str}
    app.get("/items/{item}")(limiter.limit(f"{amount}/day")(limited))
    return app


def flask_app(name: str, url: str, amount: int) -> Any:  # noqa: ANN401 (a WSGI application)
    """The view of an item, limited for each address."""
    from flask import Flask  # noqa: PLC0415 (each process has one framework)

    app = Flask(__name__)

    def view(item: str) -> dict[str, str]:
        return {"item": item}

    if name.startswith("headgate"):
        from headgate.flask import RateLimiter  # noqa: PLC0415 (ours)

        ours = RateLimiter(app, _store(url), headers="none" if name.endswith("bare") else "all")
        view = ours.limit(f"{amount}/day", per="ip")(view)
    elif name.startswith("flask_limiter"):
        from flask_limiter import Limiter  # noqa: PLC0415 (a peer)
        from flask_limiter.util import get_remote_address  # noqa: PLC0415 (a peer)

        theirs = Limiter(
            get_remote_address,
            app=app,
            storage_uri="memory://" if url == "memory" else url,
            headers_enabled=not name.endswith("bare"),
        )
        view = theirs.limit(f"{amount}/day")(view)
    app.get("/items/<item>")(view)
    return app


def _store(url: str) -> str:
    return "memory://" if url == "memory" else url


def asgi_caller(app: Any) -> Callable[[int], int]:  # noqa: ANN401 (an ASGI application)
    """Calls an ASGI application, so many calls at a time."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    state: dict[str, Any] = {}

    async def begin() -> None:
        started = asyncio.get_running_loop().create_future()

        async def send(_message: dict[str, Any]) -> None:
            if not started.done():
                started.set_result(None)

        await messages.put({"type": "lifespan.startup"})
        state["lifespan"] = asyncio.create_task(app({"type": "lifespan", "state": {}}, messages.get, send))
        await started

    async def end() -> None:
        await messages.put({"type": "lifespan.shutdown"})
        await state["lifespan"]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def one(number: int) -> int:
        status = 0

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)

        path = f"/items/{number}"
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"user-agent", b"bench"), (b"accept", b"*/*")],
            "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        await app(scope, receive, send)
        return status == _OK

    async def call(calls: int) -> int:
        async def several(first: int) -> int:
            return sum([await one(number) for number in range(first, calls, AT_ONCE)])

        return sum(await asyncio.gather(*(several(first) for first in range(AT_ONCE))))

    runner.run(begin())
    atexit.register(lambda: runner.run(end()))
    return lambda calls: runner.run(call(calls))


def wsgi_caller(app: Any) -> Callable[[int], int]:  # noqa: ANN401 (a WSGI application)
    """Calls a WSGI application, one call after the other."""

    def one(number: int) -> bool:
        statuses: list[str] = []
        environ = {
            "REQUEST_METHOD": "GET",
            "SCRIPT_NAME": "",
            "PATH_INFO": f"/items/{number}",
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": "localhost",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        body = app(environ, lambda status, _headers, _error=None: statuses.append(status))
        b"".join(body)
        if hasattr(body, "close"):
            body.close()
        return statuses[0].startswith("200")

    return lambda calls: sum(map(one, range(calls)))


def main(framework: str, name: str, url: str, amount: str) -> None:
    """Make calls until the input ends."""
    if framework == "fastapi":
        call = asgi_caller(fastapi_app(name, url, int(amount)))
    else:
        is_flask = framework == "flask"
        app = flask_app(name, url, int(amount)) if is_flask else django_app(framework, name, url, int(amount))
        call = wsgi_caller(app)
    for line in sys.stdin:
        if framework == "drf":
            forget()  # its own throttle reads and writes the times of all earlier calls with each call
        began = time.process_time()
        print(call(int(line)), time.process_time() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
