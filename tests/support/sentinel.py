"""A primary, two replicas and three sentinels, for tests of failing over."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "mymaster"
_QUICK: Final = ("--repl-diskless-sync-delay", "0")
_DOWN_AFTER: Final = 500
# Sentinels look around every second or two; in tests, ten times as often. One that was frozen, or starved by
# a busy machine, does not trust its clock for 30 s ("tilt"); in tests, for one. While the primary is down, sentinels
# look at replicas once a second, and promote none that they saw longer than five pings ago.
_HURRY: Final = {
    "info-period": 200,
    "ping-period": 300,
    "ask-period": 100,
    "publish-period": 200,
    "tilt-period": 1_000,
}


class SentinelSetup:
    """Servers that elect another primary when theirs is lost."""

    def __init__(self, folder: Path, text: str | None = None) -> None:
        """Start all of them and wait until the sentinels agree; `text` is a file of theirs, with {port} in it."""
        self.sentinels: list[Server] = []
        self.servers: list[Server] = []
        try:
            for number in range(3):
                self.servers.append(Server(folder / f"server-{number}", free_port(), options=_QUICK))
            first = str(self.servers[0].port)
            for replica in self.servers[1:]:
                replica.ask("REPLICAOF", "127.0.0.1", first)
            for number in range(3):
                self.sentinels.append(_sentinel(folder / f"sentinel-{number}", first, text))
            self.heal()
        except BaseException:
            self.stop()
            raise
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{places}/{NAME}"

    def primary(self) -> Server:
        """The server that most sentinels name."""
        named = Counter(_named(sentinel) for sentinel in self.sentinels if sentinel.answers)
        ((port, _),) = named.most_common(1)
        return next(server for server in self.servers if server.port == port)

    def replicas(self) -> list[Server]:
        """The others."""
        primary = self.primary()
        return [server for server in self.servers if server is not primary]

    def heal(self) -> None:
        """Let all of them answer again, and wait until the sentinels agree and the replicas have everything."""
        for server in (*self.servers, *self.sentinels):
            server.revive()
        for sentinel in self.sentinels:
            for period, millis in _HURRY.items():
                sentinel.ask("SENTINEL", "DEBUG", period, str(millis))
        wait_until(self._is_whole, "three sentinels agree on a primary with two replicas")

    def _is_whole(self) -> bool:
        primary = self.primary()
        seen = [_fields(sentinel.ask("SENTINEL", "MASTER", NAME)) for sentinel in self.sentinels]
        expected = {"flags": "master", "port": str(primary.port), "num-slaves": "2", "num-other-sentinels": "2"}
        return (
            all(expected.items() <= view.items() for view in seen)
            and all(_sees_replicas(sentinel) for sentinel in self.sentinels)
            and primary.text("INFO", "replication").count("state=online") == len(self.servers) - 1
        )

    def clean(self) -> None:
        """Whole again and without a key."""
        self.heal()
        self.primary().ask("FLUSHALL")

    def stop(self) -> None:
        """End all of them."""
        for server in (*self.sentinels, *self.servers):
            server.kill()


def _sentinel(folder: Path, port: str, text: str | None) -> Server:
    folder.mkdir()
    file = folder / "sentinel.conf"
    quick = (
        f"sentinel monitor {NAME} 127.0.0.1 {port} 2\n"
        f"sentinel down-after-milliseconds {NAME} {_DOWN_AFTER}\n"
        f"sentinel failover-timeout {NAME} {3 * _DOWN_AFTER}\n"
    )
    file.write_text(quick if text is None else text.replace("{port}", port), encoding="utf-8")
    return Server(folder, free_port(), options=(str(file), "--sentinel"))


def _named(sentinel: Server) -> int:
    answer = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
    assert isinstance(answer, list)
    return int(answer[1])


def _fields(answer: object) -> dict[str, str]:
    """A list of names and values in turn, as a dict."""
    assert isinstance(answer, list)
    words = [word.decode() for word in answer]
    return dict(zip(words[::2], words[1::2], strict=True))


def _sees_replicas(sentinel: Server) -> bool:
    answer = sentinel.ask("SENTINEL", "REPLICAS", NAME)
    assert isinstance(answer, list)
    replicas = [_fields(replica) for replica in answer]
    return all(replica["flags"] == "slave" and replica["master-link-status"] == "ok" for replica in replicas)
