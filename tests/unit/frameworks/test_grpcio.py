"""Interceptors of grpcio, on real servers with threads and with an event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from headgate import InvalidSettings
from headgate.edge.frameworks.rpc import call_of, peer_of
from headgate.grpcio import AioRateLimitInterceptor, Outcome, RateLimitInterceptor, admission, exempt, rate_limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


def _user(call: Any) -> str | None:  # noqa: ANN401 (a call)
    who: str | None = call.metadata.get("x-user")
    return who


async def _user_later(call: Any) -> str | None:  # noqa: ANN401 (a call)
    return _user(call)


def _counts(outcome: Outcome) -> bool:
    failures = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNKNOWN}
    return outcome.message != b"free" and outcome.code not in failures


class _Servicer:
    """With threads."""

    def plain(self, request: bytes, _context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        return request

    @rate_limit("2/day", key=_user_later)
    def unary(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        context.set_trailing_metadata((("own", "1"),))
        return request

    @rate_limit("2/day")
    def stream(self, request: bytes, _context: Any) -> Iterator[bytes]:  # noqa: ANN401 (gRPC's)
        for _ in range(3):
            yield request

    @rate_limit("3/day", deduct_when=_counts)
    def collect(self, requests: Iterator[bytes], context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        got = b"".join(requests)
        if got == b"abort":
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        if got == b"raise":
            raise RuntimeError
        if got == b"settle":
            admission().settle(3)
        return got

    @exempt
    def free(self, request: bytes, _context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        return request


class _AioServicer:
    """On an event loop."""

    async def plain(self, request: bytes, _context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        return request

    @rate_limit("2/day", key=_user_later)
    async def unary(self, request: bytes, context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        context.set_trailing_metadata((("own", "1"),))
        return request

    @rate_limit("2/day")
    async def stream(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:  # noqa: ANN401 (gRPC's)
        for _ in range(3):
            yield request

    @rate_limit("3/day", deduct_when=_counts)
    async def collect(self, requests: AsyncIterator[bytes], context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        got = b"".join([each async for each in requests])
        if got == b"abort":
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        if got == b"raise":
            raise RuntimeError
        if got == b"settle":
            admission().settle(3)
        return got

    @exempt
    async def free(self, request: bytes, _context: Any) -> bytes:  # noqa: ANN401 (gRPC's)
        return request


def _handlers(servicer: Any) -> Any:  # noqa: ANN401 (gRPC's)
    return grpc.method_handlers_generic_handler(
        "shop.Search",
        {
            "Plain": grpc.unary_unary_rpc_method_handler(servicer.plain),
            "Unary": grpc.unary_unary_rpc_method_handler(servicer.unary),
            "Stream": grpc.unary_stream_rpc_method_handler(servicer.stream),
            "Collect": grpc.stream_unary_rpc_method_handler(servicer.collect),
            "Free": grpc.unary_unary_rpc_method_handler(servicer.free),
        },
    )


@contextmanager
def _threads(**options: Any) -> Iterator[Any]:  # noqa: ANN401 (gRPC's)
    server = grpc.server(ThreadPoolExecutor(2), interceptors=[RateLimitInterceptor(**options)])
    server.add_generic_rpc_handlers((_handlers(_Servicer()),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        server.stop(None).wait()


@contextmanager
def _threads_of_loop(**options: Any) -> Iterator[Any]:  # noqa: ANN401 (gRPC's)
    """Plain functions on a server with an event loop: gRPC runs them in threads."""
    with _loop(_Servicer, **options) as channel:
        yield channel


@contextmanager
def _loop(servicer: Callable[[], Any] = _AioServicer, **options: Any) -> Iterator[Any]:  # noqa: ANN401 (gRPC's)
    with asyncio.Runner() as runner:

        async def start() -> tuple[Any, Any, int]:
            interceptor = AioRateLimitInterceptor(**options)
            server = grpc.aio.server(interceptors=[interceptor])
            server.add_generic_rpc_handlers((_handlers(servicer()),))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            return interceptor, server, port

        interceptor, server, port = runner.run(start())
        with ThreadPoolExecutor(1) as pool, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            ended = asyncio.Event()
            running = pool.submit(runner.run, ended.wait())
            try:
                yield channel
            finally:
                runner.get_loop().call_soon_threadsafe(ended.set)
                running.result()
                runner.run(server.stop(None))
                runner.run(interceptor.close())


each = pytest.mark.parametrize("serving", [_threads, _loop, _threads_of_loop], ids=["threads", "loop", "both"])


def _called(channel: Any, method: str, message: bytes = b"x", user: str | None = None) -> tuple[Any, Any, Any]:  # noqa: ANN401 (gRPC's)
    """The response, the code and the trailing metadata of a call."""
    metadata = () if user is None else (("x-user", user),)
    path = f"/shop.Search/{method}"
    try:
        if method == "Stream":
            stream = channel.unary_stream(path)(message, timeout=20, metadata=metadata)
            got: Any = list(stream)
            return got, stream.code(), dict(stream.trailing_metadata() or ())
        if method == "Collect":
            got, call = channel.stream_unary(path).with_call(iter([message]), timeout=20, metadata=metadata)
        else:
            got, call = channel.unary_unary(path).with_call(message, timeout=20, metadata=metadata)
        return got, call.code(), dict(call.trailing_metadata() or ())
    except grpc.RpcError as error:
        failed: Any = error
        return None, failed.code(), dict(failed.trailing_metadata() or ())


def _codes(channel: Any, method: str, *messages: bytes, user: str | None = None) -> list[str]:  # noqa: ANN401 (gRPC's)
    return [_called(channel, method, message, user)[1].name for message in messages]


@each
def test_functions_of_servicers_are_limited(serving: Callable[..., Any]) -> None:
    """Unary and streaming calls are refused with RESOURCE_EXHAUSTED; metadata tells what is left, and when to retry."""
    with serving() as channel:
        got, code, metadata = _called(channel, "Unary", user="ann")
        assert (got, code) == (b"x", grpc.StatusCode.OK)
        assert (metadata["x-ratelimit-remaining"], metadata["own"]) == ("1", "1")
        assert _codes(channel, "Unary", b"x", b"x", user="ann") == ["OK", "RESOURCE_EXHAUSTED"]
        assert _codes(channel, "Unary", b"x", user="bob") == ["OK"]
        _, _, refused = _called(channel, "Unary", user="ann")
        assert int(refused["retry-after"]) >= 1
        assert int(refused["grpc-retry-pushback-ms"]) >= 1
        assert _called(channel, "Stream")[0] == [b"x"] * 3
        assert _codes(channel, "Stream", b"x", b"x") == ["OK", "RESOURCE_EXHAUSTED"]
        assert _codes(channel, "Plain", *[b"x"] * 5) == ["OK"] * 5
        assert _codes(channel, "Nothing", b"x") == ["UNIMPLEMENTED"]


@each
def test_outcomes_and_settled_costs_count(serving: Callable[..., Any]) -> None:
    """A call whose outcome does not count is given back, and one that settles costs what it says."""
    with serving() as channel:
        assert _codes(channel, "Collect", *[b"free"] * 5) == ["OK"] * 5
        assert _codes(channel, "Collect", *[b"abort"] * 4) == ["PERMISSION_DENIED"] * 4, "a servicer's own checks hold"
        assert _codes(channel, "Collect", *[b"raise"] * 4) == ["UNKNOWN"] * 4
        assert _codes(channel, "Collect", b"settle", b"x") == ["OK", "RESOURCE_EXHAUSTED"]


@each
def test_rules_defaults_and_own_answers(serving: Callable[..., Any]) -> None:
    """Rules match methods as paths; a default holds for the rest; `on_refused` gives another response."""
    rules = [{"name": "all", "per": ["user"], "limits": "3/day", "match": {"endpoints": "/shop.Search/*"}}]
    options = {"identify": _user, "default_limits": "2/day", "on_refused": lambda _call, _verdict: b"later"}
    with serving(rules=rules, **options) as channel:
        answers = [_called(channel, "Plain", user="ann")[0] for _ in range(3)]
        assert answers == [b"x", b"x", b"later"]
        assert _called(channel, "Unary", user="ann")[0] == b"x"
        assert _called(channel, "Unary", user="ann")[0] == b"later"
        assert _codes(channel, "Free", *[b"x"] * 5, user="ann") == ["OK"] * 5


@each
def test_what_cannot_be_decided_is_unavailable_or_invalid(serving: Callable[..., Any]) -> None:
    """An identity that is none is INVALID_ARGUMENT, and no call passes by that way."""
    with serving(default_limits="2/day", identify=lambda _: 7) as channel:
        assert _codes(channel, "Plain", b"x") == ["INVALID_ARGUMENT"]


@each
def test_a_caller_behind_a_proxy_cannot_choose_its_address(serving: Callable[..., Any]) -> None:
    """Metadata that only looks like the proxy's header in another form is not taken for it."""
    rules = [{"name": "all", "per": ["ip"], "limits": "2/day"}]
    with serving(rules=rules, trusted_proxies=["127.0.0.0/8"]) as channel:
        codes = []
        for number in range(4):
            metadata = (("x-forwarded-for", "203.0.113.9"), ("x_forwarded_for", f"1.2.3.{number}"))
            try:
                channel.unary_unary("/shop.Search/Plain")(b"x", timeout=20, metadata=metadata)
                codes.append("OK")
            except grpc.RpcError as error:
                failed: Any = error
                codes.append(failed.code().name)
        assert codes == ["OK", "OK", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"]


def test_all_forwarding_lines_count() -> None:
    """Each proxy adds a line of its own; of other names the first value counts."""
    lines: list[tuple[str, str | bytes]] = [
        ("forwarded", "for=1.2.3.4"),
        ("x-a", "1"),
        ("forwarded", "for=192.0.2.7"),
        ("x-a", b"2"),
    ]
    assert call_of("/m", lines, None, None).metadata == {"forwarded": "for=1.2.3.4, for=192.0.2.7", "x-a": "1"}


def test_options_without_effect_are_refused() -> None:
    """There are no HTTP methods and statuses in gRPC."""
    for options in ({"methods": ["GET"]}, {"per_method": True}, {"status": 400}):
        with pytest.raises(InvalidSettings, match="has no effect here: gRPC calls have no HTTP method"):
            rate_limit("1/day", **options)
    with pytest.raises(TypeError, match="limit is not enforced, since headgate is not installed"):
        _Servicer().unary(b"x", None)
    with pytest.raises(TypeError, match="is not installed"):
        admission()


def test_peers_are_addresses() -> None:
    """Whatever gRPC calls a peer becomes an address, or none."""
    assert peer_of("ipv4:192.0.2.1:5000") == "192.0.2.1"
    assert peer_of("ipv6:%5B2001:db8::1%5D:5000") == "2001:db8::1"
    assert peer_of("ipv6:[::1]:5000") == "::1"
    assert peer_of("unix:/tmp/socket") is None
