"""Where Redis servers are and how to get in, read from a URL.

    redis://[user:password@]host[:port][/db]        rediss:// for TLS
    unix:///path.sock                               or redis+unix://
    redis+sentinel://host[:port],host…/name[/db]    rediss+sentinel:// for TLS to all of them
    redis+cluster://host[:port],host…               rediss+cluster://
    redis+ring://host[:port],host…[/db]             rediss+ring://

Options follow a question mark: ``?deadline_ms=50&protocol=3``.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headgate.core.safety import OnStoreError
from headgate.errors import InvalidSettings, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

_PORTS: Final = {"": 6379, "unix": 0, "sentinel": 26379, "cluster": 6379, "ring": 6379}
REDIS_SCHEMES: Final = (
    "unix",
    *(f"{start}+{kind}" if kind else start for start in ("redis", "rediss") for kind in _PORTS if kind != "unix"),
    "redis+unix",
)
_OPTIONS: Final = {
    "db",
    "deadline_ms",
    "on_store_error",
    "probe_ms",
    "protocol",
    "sentinel_password",
    "sentinel_user",
    "ssl_ca",
    "ssl_cert",
    "ssl_check",
    "ssl_key",
}
_HIGHEST_DB: Final = 1_000
_LONGEST_WAIT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """One server: a host and port, or a unix socket, and what it wants to hear first."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    protocol: int = 2
    tls: ssl.SSLContext | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The place, without secrets."""
        return self.path or f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> ServerAddress:
        """The address of one server."""
        return StoreAddress.parse(url).servers[0]

    def at(self, host: str, port: int) -> ServerAddress:
        """Another server, which is entered in the same way."""
        return replace(self, host=host, port=port, path=None)

    def greeting(self) -> list[tuple[str, ...]]:
        """The commands to send before anything else."""
        commands: list[tuple[str, ...]] = []
        credentials = ("AUTH", self.user or "default", self.password) if self.password is not None else ()
        if self.protocol != 2:  # noqa: PLR2004 (RESP 2 needs no HELLO)
            commands.append(("HELLO", str(self.protocol), *credentials))
        elif credentials:
            commands.append(credentials if self.user else ("AUTH", self.password or ""))
        if self.db:
            commands.append(("SELECT", str(self.db)))
        return commands


class StoreAddress(NamedTuple):
    """A number of servers, what they are to each other, and how long to wait for them."""

    kind: str
    """Empty for one server; sentinel, cluster or ring."""
    servers: Sequence[ServerAddress]
    """As written; for Sentinel, the sentinels."""
    primary: ServerAddress
    """How to enter the servers that count, wherever they are."""
    name: str
    """What sentinels call their primary."""
    deadline: float
    probe_every: float
    on_store_error: OnStoreError
    """For keys without a rule."""

    @classmethod
    def parse(cls, url: str) -> StoreAddress:
        """Read a URL, or raise `InvalidSettings` with a sentence that names what is wrong but no secret."""
        parts = urlsplit(url)
        userinfo, _, hosts = parts.netloc.rpartition("@")
        label = f"{parts.scheme}://{hosts or parts.path}"
        if parts.scheme not in REDIS_SCHEMES:
            msg = f"{shown(label)} is not the address of a Redis server; write redis://host:6379"
            raise InvalidSettings(msg)
        kind = parts.scheme.partition("+")[2] or ("unix" if parts.scheme == "unix" else "")
        options = _Options(label, parts)
        name, db = _name_and_db(label, kind, parts)
        user, _, password = userinfo.partition(":")
        base = ServerAddress(
            user=unquote(user) or None,
            password=unquote(password) if password else None,
            db=options.number("db", int(db) if db.isdigit() else -1, 0, _HIGHEST_DB),
            protocol=options.number("protocol", 2, 2, 3),
            tls=options.tls() if parts.scheme.startswith("rediss") else None,
        )
        if kind == "cluster" and base.db:
            msg = f"{shown(label)}: a cluster has only database 0"
            raise InvalidSettings(msg)
        if kind == "unix":
            servers = [replace(base, path=hosts + parts.path)]
        else:
            servers = [base.at(*_host_and_port(label, host, _PORTS[kind])) for host in hosts.split(",")]
        if kind == "sentinel":
            # Sentinels have accounts of their own, and no databases.
            user, password = options.text("sentinel_user"), options.text("sentinel_password")
            servers = [replace(each, user=user or None, password=password or None, db=0) for each in servers]
        return cls(
            "" if kind == "unix" else kind,
            servers,
            base,
            name,
            options.number("deadline_ms", 50, 1, _LONGEST_WAIT_MS) / 1000,
            options.number("probe_ms", 1000, 1, _LONGEST_WAIT_MS) / 1000,
            options.on_store_error(),
        )


def _name_and_db(label: str, kind: str, parts: SplitResult) -> tuple[str, str]:
    if kind == "unix":
        return "", "0"
    path = parts.path.strip("/").split("/")
    if kind != "sentinel":
        return "", path[0] or "0"
    if not path[0]:
        msg = f"{shown(label)}: say what the sentinels call the primary: redis+sentinel://host:26379/mymaster"
        raise InvalidSettings(msg)
    return unquote(path[0]), path[1] if len(path) > 1 else "0"


def _host_and_port(label: str, text: str, usual: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    try:
        port = parts.port or usual
    except ValueError:
        msg = f"{shown(label)}: the port is a number from 1 to 65535"
        raise InvalidSettings(msg) from None
    return parts.hostname or "localhost", port


class _Options:
    """What follows the question mark."""

    def __init__(self, label: str, parts: SplitResult) -> None:
        self._label = shown(label)
        self._given = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := set(self._given) - _OPTIONS:
            known = ", ".join(sorted(_OPTIONS))
            msg = f"{self._label}: unknown option {', '.join(sorted(map(shown, unknown)))}; known are {known}"
            raise InvalidSettings(msg)

    def text(self, name: str) -> str:
        return self._given.get(name, "")

    def number(self, name: str, usual: int, least: int, most: int) -> int:
        text = self._given.get(name, str(usual))
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        what = "the database" if name == "db" else name
        msg = f"{self._label}: {what} is a number from {least} to {most}"
        raise InvalidSettings(msg)

    def on_store_error(self) -> OnStoreError:
        text = self._given.get("on_store_error", OnStoreError.ALLOW)
        try:
            return OnStoreError(text)
        except ValueError:
            msg = f"{self._label}: on_store_error is one of {', '.join(OnStoreError)}, not {shown(text)}"
            raise InvalidSettings(msg) from None

    def tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._given.get("ssl_ca"))
            if "ssl_cert" in self._given:
                context.load_cert_chain(self._given["ssl_cert"], self._given.get("ssl_key"))
        except (OSError, ssl.SSLError) as error:
            msg = f"{self._label}: the certificates cannot be used: {error}"
            raise InvalidSettings(msg) from error
        check = self._given.get("ssl_check", "yes")
        if check not in {"yes", "no"}:
            msg = f"{self._label}: ssl_check is yes or no, not {shown(check)}"
            raise InvalidSettings(msg)
        if check == "no":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
