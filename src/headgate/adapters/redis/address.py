"""Where Redis servers are and how to get in, read from a URL.

    redis://[user:password@]host[:port][/db]        rediss:// for TLS
    unix:///path.sock                               or redis+unix://
    redis+sentinel://host[:port],host…/name[/db]    rediss+sentinel:// for TLS to all of them
    redis+cluster://host[:port],host…               rediss+cluster://
    redis+ring://host[:port],host…[/db]             rediss+ring://

Options follow a question mark: ``?deadline_ms=50&protocol=3``. IPv6 addresses stand in
brackets. url.py takes the text apart; here its parts get their meaning.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

from headgate.adapters.redis.url import Written
from headgate.core.safety import OnOverload, OnStoreError
from headgate.errors import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

Choice = TypeVar("Choice", bound=StrEnum)

_PORTS: Final = {"": 6379, "unix": 0, "sentinel": 26379, "cluster": 6379, "ring": 6379}
_OPTIONS: Final = {
    "db",
    "deadline_ms",
    "on_overload",
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
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.path or f"{host}:{self.port}"

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
    """For keys without a rule, as is the next."""
    on_overload: OnOverload

    @classmethod
    def parse(cls, url: str) -> StoreAddress:
        """Read a URL, or raise `InvalidSettings` with a sentence that names what is wrong but no secret."""
        written = Written.split(url)
        kind = written.scheme.partition("+")[2] or ("unix" if written.scheme == "unix" else "")
        options = _Options(written)
        name, db = written.name_and_db(kind)
        user, _, password = written.userinfo.partition(":")
        base = ServerAddress(
            user=unquote(user) or None,
            password=unquote(password) if password else None,
            db=options.number("db", db, 0, _HIGHEST_DB),
            protocol=options.number("protocol", "2", 2, 3),
            tls=options.tls() if written.scheme.startswith("rediss") else None,
        )
        if kind == "cluster" and base.db:
            written.refuse("a cluster has only database 0")
        if kind == "unix":
            servers = [replace(base, path=written.socket())]
        else:
            servers = [base.at(host, port) for host, port in written.servers(_PORTS[kind])]
        if not kind and len(servers) > 1:
            written.refuse("one server is enough here; write redis+cluster:// or redis+ring:// for several")
        if kind == "sentinel":
            # Sentinels have accounts of their own, and no databases.
            user, password = options.text("sentinel_user"), options.text("sentinel_password")
            servers = [replace(each, user=user or None, password=password or None, db=0) for each in servers]
        return cls(
            "" if kind == "unix" else kind,
            servers,
            base,
            name,
            options.number("deadline_ms", "50", 1, _LONGEST_WAIT_MS) / 1000,
            options.number("probe_ms", "1000", 1, _LONGEST_WAIT_MS) / 1000,
            options.choice("on_store_error", OnStoreError.ALLOW),
            options.choice("on_overload", OnOverload.WAIT),
        )


class _Options:
    """What follows the question mark."""

    def __init__(self, written: Written) -> None:
        self._refuse = written.refuse
        self._given = dict(parse_qsl(written.query, keep_blank_values=True))
        if unknown := set(self._given) - _OPTIONS:
            self._refuse(f"unknown option {shown(min(unknown))}; known are {', '.join(sorted(_OPTIONS))}")

    def text(self, name: str) -> str:
        return self._given.get(name, "")

    def number(self, name: str, usual: str, least: int, most: int) -> int:
        text = self._given.get(name, usual)
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not is_number or not least <= int(text) <= most:
            self._refuse(f"{'the database' if name == 'db' else name} is a number from {least} to {most}")
        return int(text)

    def choice(self, name: str, usual: Choice) -> Choice:
        text = self._given.get(name, usual)
        try:
            return type(usual)(text)
        except ValueError:
            self._refuse(f"{name} is one of {', '.join(type(usual))}, not {shown(text)}")

    def tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._given.get("ssl_ca"))
            if "ssl_cert" in self._given:
                context.load_cert_chain(self._given["ssl_cert"], self._given.get("ssl_key"))
        except (OSError, ValueError) as error:  # no such file, or no such path
            self._refuse(f"the certificates cannot be used: {error}")
        check = self._given.get("ssl_check", "yes")
        if check not in {"yes", "no"}:
            self._refuse(f"ssl_check is yes or no, not {shown(check)}")
        if check == "no":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
