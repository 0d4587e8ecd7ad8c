"""The privileges that the documentation tells people to give are enough, and none is too many."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.support.valkey import Server, free_port

from headgate import Limiter, Request, StoreError
from headgate.adapters.redis import RedisCache, RedisHotLists, feed_at, store_at
from headgate.controlplane.documents import make
from headgate.core.hot_list import HotList
from headgate.ports import Announcement, Position

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


def _commands(root: Path, fences: Fences) -> list[list[str]]:
    """For the counters, and for the changes of a control plane."""
    texts = [text for _, text in fences(root / "docs/how-to/use-redis.md", "console")]
    return [shlex.split(text.removeprefix("$ valkey-cli ")) for text in texts]


async def _everything(url: str) -> set[str]:
    """Whatever a limiter can do; how its verdicts were reached."""
    async with Limiter.open(url, RULES) as limiter:
        checked = await limiter.check(Request(user="u", ip="203.0.113.9"))
        await limiter.refund(checked)
        await limiter.reset(Request(user="u", ip="203.0.113.9"))
        algorithms = ("sliding_window_log", "sliding_window_log", *["fixed_window"] * 3, "token_bucket")
        hits = [await limiter.hit("k", "5/hour", algorithm=name) for name in algorithms]
        await limiter.refund(hits[-1])
        async with limiter.slot("reports", "3 concurrent"):
            await limiter.store.store.store.store.present("one-process", 1)  # type: ignore[attr-defined] # the heartbeat, now
        return {verdict.source for verdict in (checked, *hits)}


async def _every_change(url: str) -> None:
    """Whatever is done with changes: announced, heard, cached."""
    feed, store = feed_at(url), store_at(url)
    cache = RedisCache(store)
    try:
        await RedisHotLists(store, clock=lambda: 0).put("long-gone", HotList(1, []))
        assert await RedisHotLists(store).all() == {}
        looked = await cache.get_many(["hg:user:u1"])
        await cache.put_many({"hg:user:u1": b"v"}, 60, looked.era or "")
        await cache.drop(["hg:user:u1"])
        await cache.drop(["*"])
        with suppress(StoreError):
            async with aclosing(feed.announcements()) as arriving:
                await anext(arriving)
        for key in ("document:rules", "position"):  # something foreign is in the way
            await store.execute(f"hg:{{control}}:{key}", "SET", f"hg:{{control}}:{key}", "x")
        await feed.put(make("rules", 1, {}))
        await feed.announce(Announcement(0, Position("l", 1, "m"), []))
        assert await feed.document("rules") == make("rules", 1, {})
        assert (await feed.state()).position.number == 1
    finally:
        await feed.close()
        await store.close()


def test_the_privileges_are_enough(root: Path, fences: Fences, server: Server) -> None:
    """A user that was made as the page says can do whatever headgate does, and nothing is denied to it."""
    counters, changes = _commands(root, fences)
    server.ask(*counters)
    url = f"redis://headgate:secret@127.0.0.1:{server.port}?deadline_ms=2000"
    assert asyncio.run(_everything(url)) == {"store"}
    assert server.ask("ACL", "LOG") == []
    server.ask(*changes)
    asyncio.run(_every_change(url))
    assert server.ask("ACL", "LOG") == []


def test_no_privilege_is_too_many(root: Path, fences: Fences, server: Server) -> None:
    """Each command on the page is needed: without it something is refused."""
    given, changes = _commands(root, fences)
    url = f"redis://headgate:secret@127.0.0.1:{server.port}?deadline_ms=500"
    for command in [word for word in given if word.startswith("+")]:
        server.ask(*given, f"-{command[1:]}")
        server.ask("SCRIPT", "FLUSH")
        server.ask("ACL", "LOG", "RESET")
        with suppress(StoreError):
            asyncio.run(_everything(url))
        assert server.ask("ACL", "LOG"), command
    server.ask(*given)
    for words in [word for word in changes[3:] if word[0] in "+~&"]:
        less = (
            ["resetkeys", "~rl:*"] if words[0] == "~" else ["resetchannels"] if words[0] == "&" else [f"-{words[1:]}"]
        )
        server.ask(*changes, *less)
        server.ask("ACL", "LOG", "RESET")
        with suppress(StoreError, AssertionError):
            asyncio.run(_every_change(url))
        assert server.ask("ACL", "LOG"), words
