"""Servers that are lost, refuse or are slow: callers are answered all the same, and the log says why.

Short forms of what `make chaos` measures.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.valkey import Server
from tests.support.waiting import wait_until

from headgate import Limiter, Request
from headgate.adapters.redis import store_at
from headgate.adapters.redis.topology import slot_of
from headgate.core.decision import Hit, Source
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.errors import StoreError
from headgate.testing import ErrorLine, Fault, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup

    from headgate.core.verdict import Verdict

LIMIT = "1000/hour"
PATIENCE = 30
HASTY = "deadline_ms=50&probe_ms=20"
METER = Meter(Rate(5, 3_600_000_000), Algorithm.FIXED_WINDOW)


async def answered(limiter: Limiter, source: Source) -> Verdict:
    """Ask until an answer comes from there."""
    async with asyncio.timeout(PATIENCE):
        while (verdict := await limiter.hit("k", LIMIT)).source is not source:  # noqa: ASYNC110 (callers find out by asking)
            await asyncio.sleep(0.005)
    return verdict


def out_and_back(url: str, begin: Callable[[], object], end: Callable[[], object], source: Source) -> Verdict:
    """Let an outage come and go, and return a verdict from the middle of it."""

    async def scenario() -> Verdict:
        async with Limiter.open(url) as limiter:
            await answered(limiter, Source.STORE)
            begin()
            verdict = await answered(limiter, source)
            end()
            await answered(limiter, Source.STORE)
            return verdict

    return asyncio.run(scenario())


def calls(server: Server, command: str) -> int:
    """How often a server has executed a command."""
    lines = server.text("INFO", "commandstats").splitlines()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith(f"cmdstat_{command}:"))


@pytest.mark.parametrize("policy", ["allow", "deny", "local"])
def test_a_server_that_freezes(valkey: Server, policy: str) -> None:
    """While a server is frozen `on_store_error` decides; when it thaws, it counts again."""
    url = f"{valkey.url}?{HASTY}&on_store_error={policy}"
    verdict = out_and_back(url, valkey.freeze, valkey.thaw, Source(f"degraded_{policy}"))
    assert verdict.allowed == (policy != "deny")


def test_a_server_that_dies_and_comes_back(valkey: Server) -> None:
    """A server that was killed and started again counts again."""
    out_and_back(f"{valkey.url}?{HASTY}", valkey.kill, valkey.start, Source.DEGRADED_ALLOW)


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.REFUSED, Fault.CUT, Fault.RESET, Fault.GARBAGE, Fault.SLOW])
def test_a_server_that_misbehaves(valkey: Server, fault: Fault) -> None:
    """Whatever goes wrong on the way to a server, callers are answered, and it is used again when it is well."""
    with FaultProxy(path=valkey.socket) as proxy:
        out_and_back(f"{proxy.url}?{HASTY}", lambda: proxy.play(fault), proxy.heal, Source.DEGRADED_ALLOW)


@pytest.mark.parametrize("line", ErrorLine, ids=lambda line: line.name)
def test_a_server_that_says_it_cannot(valkey: Server, line: ErrorLine) -> None:
    """A server that is in no state to count is unavailable until it can."""
    with FaultProxy(path=valkey.socket) as proxy:
        out_and_back(f"{proxy.url}?{HASTY}", lambda: proxy.says(line), proxy.heal, Source.DEGRADED_ALLOW)


def test_a_server_that_forgot_a_script_is_sent_it_once(valkey: Server) -> None:
    """However many calls find that a server has lost a script, it is sent again once, and each call is counted once."""

    async def scenario() -> None:
        store = store_at(f"{valkey.url}?deadline_ms=5000")
        await store.take([Hit("k0", METER, 1)])
        valkey.ask("SCRIPT", "FLUSH")
        valkey.ask("CONFIG", "RESETSTAT")
        answers = await asyncio.gather(*[store.take([Hit(f"k{number}", METER, 1)]) for number in range(500)])
        assert [decision.remaining for (decision,) in answers] == [3] + [4] * 499
        assert calls(valkey, "eval") == 1
        await store.close()

    asyncio.run(scenario())


def test_a_server_without_memory_left(valkey: Server) -> None:
    """A server that is full and may evict nothing is unavailable until it has room again."""

    def room(size: str) -> Callable[[], object]:
        return lambda: valkey.ask("CONFIG", "SET", "maxmemory", size)

    out_and_back(f"{valkey.url}?{HASTY}", room("1mb"), room("0"), Source.DEGRADED_ALLOW)


def test_a_server_that_answers_but_refuses_writes_stays_unavailable(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A probe writes, so a server that answers PING and refuses writes gets no calls that it would refuse, too."""

    def probes() -> int:
        """How many were answered, whatever they are."""
        lines = valkey.text("INFO", "commandstats").splitlines()
        found = [line for line in lines if line.startswith(("cmdstat_set:", "cmdstat_ping:"))]
        return sum(
            int(line.split(f"{name}=")[1].split(",")[0]) for line in found for name in ("calls", "rejected_calls")
        )

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?{HASTY}") as limiter, asyncio.timeout(PATIENCE):
            await answered(limiter, Source.STORE)
            valkey.ask("CONFIG", "SET", "min-replicas-to-write", "1")
            try:
                while "circuit open" not in caplog.text:
                    await limiter.hit("k", LIMIT)
                    await asyncio.sleep(0.005)
                valkey.ask("CONFIG", "RESETSTAT")
                while await asyncio.to_thread(probes) < 10:
                    assert (await limiter.hit("k", LIMIT)).source is Source.DEGRADED_ALLOW
                    await asyncio.sleep(0.005)
                assert calls(valkey, "evalsha") == 0
            finally:
                valkey.ask("CONFIG", "SET", "min-replicas-to-write", "0")
            assert "circuit closed" not in caplog.text
            assert caplog.text.count("circuit open") == 1
            await answered(limiter, Source.STORE)

    asyncio.run(scenario())


async def away(url: str, caplog: pytest.LogCaptureFixture) -> str:
    """Ask until the log says that the server is unavailable, and return that line; all answers are degraded."""
    async with Limiter.open(url) as limiter, asyncio.timeout(PATIENCE):
        while not caplog.messages:
            verdict = await limiter.hit("k", LIMIT)
            assert verdict.source is Source.DEGRADED_ALLOW
            await asyncio.sleep(0.005)
    return caplog.messages[0]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("unknown:wrong@", "WRONGPASS")],
    ids=["none", "password", "user"],
)
def test_a_wrong_password_is_named_as_the_reason(
    servers_folder: Path, caplog: pytest.LogCaptureFixture, entry: str, reason: str
) -> None:
    """Without the right password answers are degraded, and the log says why; the password is not in it."""
    caplog.set_level(logging.WARNING)
    server = Server(servers_folder / f"locked-{reason}-{len(entry)}")
    server.ask("CONFIG", "SET", "requirepass", "right")
    try:
        line = asyncio.run(away(server.url.replace("unix://", f"redis+unix://{entry}"), caplog))
    finally:
        server.kill()
    assert reason in line
    assert ":wrong" not in line


@pytest.mark.parametrize(
    ("option", "reason"), [("db=999", "DB index"), ("protocol=2", "AUTH")], ids=["database", "password too many"]
)
def test_a_server_that_refuses_the_greeting(
    valkey: Server, caplog: pytest.LogCaptureFixture, option: str, reason: str
) -> None:
    """An address that the server does not accept is no exception for callers, and the log says what is wrong."""
    caplog.set_level(logging.WARNING)
    url = valkey.url if "db" in option else valkey.url.replace("unix://", "redis+unix://:needless@")
    assert reason in asyncio.run(away(f"{url}?{option}", caplog))


def test_the_address_of_a_replica(sentinel_setup: SentinelSetup, caplog: pytest.LogCaptureFixture) -> None:
    """Who names a read-only replica gets degraded answers, and the log says why."""
    caplog.set_level(logging.WARNING)
    assert "READONLY" in asyncio.run(away(sentinel_setup.replicas()[0].url, caplog))


def test_a_busy_event_loop_still_gives_up(valkey: Server) -> None:
    """A program that keeps its event loop busy all the time is told that a server does not answer."""

    async def scenario() -> None:
        store = store_at(f"{valkey.url}?deadline_ms=50")
        await store.connect()
        valkey.freeze()
        asked = asyncio.ensure_future(store.take((Hit("k", METER, 1),)))
        for _ in range(100):
            time.sleep(0.01)  # noqa: ASYNC251 (that is the busy program)
            await asyncio.sleep(0)
            if asked.done():
                break
        assert asked.done()
        assert isinstance(asked.exception(), StoreError)
        await store.close()

    asyncio.run(scenario())
    valkey.thaw()


def test_a_request_of_very_many_limits(valkey: Server) -> None:
    """A request with more limits than a byte can count is answered like any other."""

    async def scenario() -> None:
        store = store_at(f"{valkey.url}?deadline_ms=5000")
        hits = [Hit(f"rl:{{u=1}}:{number}:fw1h", METER, 1) for number in range(300)]
        async with asyncio.timeout(10):
            decisions = await store.take(hits)
        assert [decision.remaining for decision in decisions] == [4] * 300
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_a_lost_primary(request: pytest.FixtureRequest, kind: str) -> None:
    """When a primary is lost, its successor counts as soon as it is one; callers notice nothing but the source."""
    setup: SentinelSetup | ClusterSetup = request.getfixturevalue(f"{kind}_setup")
    primary = setup.primary() if kind == "sentinel" else setup.node_of(slot_of("rl:h:sc1h:k"))  # type: ignore[union-attr] # there is one
    out_and_back(f"{setup.url}?{HASTY}", primary.kill, lambda: None, Source.DEGRADED_ALLOW)


def test_the_first_checks_of_many_programs(cluster_setup: ClusterSetup) -> None:
    """While a program learns who has which slot, what it asked of nodes without any is answered by the others."""

    async def scenario() -> None:
        for _ in range(10):
            async with Limiter.open(cluster_setup.url + "?deadline_ms=5000") as limiter:
                asked = []
                for number in range(50):
                    asked.append(asyncio.ensure_future(limiter.hit(f"k{number}", LIMIT)))
                    await asyncio.sleep(0.0005)
                assert {verdict.source for verdict in await asyncio.gather(*asked)} == {Source.STORE}

    asyncio.run(scenario())


REPLICATED = {"rules": [{"name": "dear", "per": "user", "limits": LIMIT, "wait_replicas": 1}]}


def test_waiting_for_replicas(sentinel_setup: SentinelSetup) -> None:
    """A verdict says whether a replica has it; without replicas it is counted and answered all the same."""

    async def scenario() -> None:
        async with Limiter.open(sentinel_setup.url + "?deadline_ms=5000", REPLICATED) as limiter:
            assert (await limiter.check(Request(user="u"))).replicated
        async with Limiter.open(sentinel_setup.url, REPLICATED) as limiter:
            await limiter.check(Request(user="u"))
            for replica in sentinel_setup.replicas():
                replica.freeze()
            async with asyncio.timeout(PATIENCE):
                while (await limiter.check(Request(user="u"))).replicated:  # noqa: ASYNC110 (one may have it still)
                    await asyncio.sleep(0)

    asyncio.run(scenario())


def test_a_shortfall_of_replicas_refuses_where_a_rule_says_so(sentinel_setup: SentinelSetup) -> None:
    """With `on_shortfall: deny` nothing passes that no replica has, and nothing of it stays counted."""
    strict = {"name": "strict", "per": "user", "limits": "5/hour", "wait_replicas": 1, "on_shortfall": "deny"}
    beside = {"name": "beside", "per": "ip", "limits": "5/hour"}

    async def scenario() -> None:
        request = Request(user="u", ip="192.0.2.1")
        async with Limiter.open(sentinel_setup.url + "?deadline_ms=500", [strict, beside]) as limiter:
            assert (await limiter.check(request)).allowed
            for replica in sentinel_setup.replicas():
                replica.freeze()
            async with asyncio.timeout(PATIENCE):
                while (refused := await limiter.check(request)).allowed:  # noqa: ASYNC110 (one may have it still)
                    await asyncio.sleep(0)
            assert (refused.source, refused.replicated, refused.status) == (Source.DEGRADED_DENY, False, 429)
            assert refused.retry_after == 1
            left = await limiter.peek(request)
            for _ in range(5):
                assert not (await limiter.check(request)).allowed
            assert [each.decision.remaining for each in (await limiter.peek(request)).findings] == [
                each.decision.remaining for each in left.findings
            ]
            for replica in sentinel_setup.replicas():
                replica.thaw()
            async with asyncio.timeout(PATIENCE):
                while not (admitted := await limiter.check(request)).allowed:  # noqa: ASYNC110 (it catches up)
                    await asyncio.sleep(0)
            assert admitted.replicated

    asyncio.run(scenario())


def is_waiting(server: Server) -> bool:
    """Whether a client waits for its replicas."""
    return "blocked_clients:1" in server.text("INFO", "clients")


def test_those_who_came_during_a_wait_share_the_next_one(sentinel_setup: SentinelSetup) -> None:
    """However many ask while replicas are waited for, all of them wait for one more answer, not for two."""

    async def scenario() -> None:
        async with Limiter.open(sentinel_setup.url + "?deadline_ms=2000", REPLICATED) as limiter:
            await limiter.check(Request(user="u"))
            for replica in sentinel_setup.replicas():
                replica.freeze()
            primary = sentinel_setup.primary()
            before = calls(primary, "wait")
            first = asyncio.ensure_future(limiter.check(Request(user="u")))
            await asyncio.to_thread(wait_until, lambda: is_waiting(primary), "a wait is running")
            others = []
            for number in range(5):
                others.append(asyncio.ensure_future(limiter.check(Request(user=f"u{number}"))))
                await asyncio.sleep(0.001)  # so that they do not travel together
            assert not (await first).replicated
            verdicts = await asyncio.gather(*others)
            assert not any(verdict.replicated for verdict in verdicts)
            assert {verdict.source for verdict in verdicts} == {Source.STORE}
            assert calls(primary, "wait") == before + 2

    asyncio.run(scenario())


def test_a_primary_that_freezes_is_not_waited_for_twice(sentinel_setup: SentinelSetup) -> None:
    """Who came while replicas were waited for is not held up again when it is the primary that is silent."""

    async def scenario() -> None:
        async with Limiter.open(sentinel_setup.url + "?deadline_ms=1000", REPLICATED) as limiter:
            await limiter.check(Request(user="u"))
            primary = sentinel_setup.primary()
            for replica in sentinel_setup.replicas():
                replica.freeze()
            first = asyncio.ensure_future(limiter.check(Request(user="u")))
            await asyncio.to_thread(wait_until, lambda: is_waiting(primary), "a wait is running")
            primary.freeze()
            second = asyncio.ensure_future(limiter.check(Request(user="u2")))
            assert (await first).source is Source.STORE
            await asyncio.wait_for(asyncio.shield(second), 0.5)
            assert second.result().source is Source.DEGRADED_ALLOW

    asyncio.run(scenario())
