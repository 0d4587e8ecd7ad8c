"""The privileges that the documentation tells people to give are enough, and none is too many."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.integration.server import Server, free_port

from headgate import Limiter, Request, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Fences = Callable[[Path, str], list[tuple[int, str]]]

RULES: Final[list[Mapping[str, Any]]] = [
    {"name": "window", "per": "user", "limits": "5/hour", "algorithm": "fixed_window", "wait_replicas": 1},
    {"name": "log", "per": "ip", "limits": "5/hour", "algorithm": "sliding_window_log", "on_store_error": "local"},
    {"name": "slots", "limits": "9 concurrent", "algorithm": "concurrency"},
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that is all ours."""
    server = Server(tmp_path / "valkey", free_port())
    yield server
    server.kill()


def _command(root: Path, fences: Fences) -> list[str]:
    ((_, text),) = fences(root / "docs/how-to/use-redis.md", "console")
    return shlex.split(text.removeprefix("$ valkey-cli "))


async def _everything(url: str) -> set[str]:
    """Whatever a limiter can do; how its verdicts were reached."""
    async with Limiter.open(url, RULES) as limiter:
        checked = await limiter.check(Request(user="u", ip="203.0.113.9"))
        await limiter.refund(checked)
        await limiter.reset(Request(user="u", ip="203.0.113.9"))
        algorithms = ("sliding_window_log", "sliding_window_log", "token_bucket")
        hits = [await limiter.hit("k", "5/hour", algorithm=name) for name in algorithms]
        await limiter.refund(hits[-1])
        async with limiter.slot("reports", "3 concurrent"):
            await limiter.store.store.present("somebody", 1)  # type: ignore[attr-defined] # the heartbeat, now
        return {verdict.source for verdict in (checked, *hits)}


def test_the_privileges_are_enough(root: Path, fences: Fences, server: Server) -> None:
    """A user that was made as the page says can do whatever headgate does, and nothing is denied to it."""
    server.ask(*_command(root, fences))
    url = f"redis://headgate:secret@127.0.0.1:{server.port}?deadline_ms=2000"
    assert asyncio.run(_everything(url)) == {"store"}
    assert server.ask("ACL", "LOG") == []


def test_no_privilege_is_too_many(root: Path, fences: Fences, server: Server) -> None:
    """Each command on the page is needed: without it something is refused."""
    given = _command(root, fences)
    url = f"redis://headgate:secret@127.0.0.1:{server.port}?deadline_ms=500"
    for command in [word for word in given if word.startswith("+")]:
        server.ask(*given, f"-{command[1:]}")
        server.ask("SCRIPT", "FLUSH")
        server.ask("ACL", "LOG", "RESET")
        with suppress(StoreError):
            asyncio.run(_everything(url))
        assert server.ask("ACL", "LOG"), command
