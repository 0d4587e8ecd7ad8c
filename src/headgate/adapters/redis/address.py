"""The addresses and credentials of Redis servers, read from a URL.

    redis://[user:password@]host[:port][/db]        rediss:// for TLS
    unix:///path.sock                               or redis+unix://
    redis+sentinel://host[:port],host…/name[/db]    rediss+sentinel:// for TLS to all of them
    redis+cluster://host[:port],host…               rediss+cluster://
    redis+ring://host[:port],host…[/db]             rediss+ring://

Options follow a question mark: ``?deadline_ms=50&protocol=3``. IPv6 addresses stand in
brackets. url.py takes the text apart; here its parts get their meaning.

The URL of a Redis store, taken apart.

Not by `urllib.parse.urlsplit`: it knows no lists of hosts, refuses other brackets in every
version of Python, and what it says repeats what was parts. Here nothing of a URL but its
scheme is ever repeated, because a password that was not encoded may end up in any part.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote

from headgate.adapters.changed_files import ReloadedValue
from headgate.core.failure_policy import OnOverload, OnStoreError
from headgate.core.spread import SPREAD_WORDS, SpreadMode
from headgate.errors import InvalidSettings, short_repr
from headgate.setting_values import TextFromFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KINDS: Final = ("", "+sentinel", "+cluster", "+ring")
REDIS_SCHEMES: Final = (
    "unix",
    "redis+unix",
    *(f"{start}{kind}" for start in ("redis", "rediss") for kind in _KINDS),
)
_URL: Final = re.compile(r"[^:]*://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SERVER: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^\s\[\]:]*))(?::([0-9]{1,5})?)?")
_MAX_PORT: Final = 65_535


def is_redis_url(url: object) -> bool:
    """Whether the scheme of a URL is one of ours; the rest may be anything."""
    return isinstance(url, str) and _scheme(url) in REDIS_SCHEMES


def _scheme(url: str) -> str:
    return url.strip().partition(":")[0].lower()


class _UrlParts(NamedTuple):
    """The parts of a URL, still percent-encoded."""

    scheme: str
    userinfo: str
    hosts: str
    path: str
    query: str

    @classmethod
    def split(cls, url: str) -> _UrlParts:
        """Take a URL apart, or raise `InvalidSettings`."""
        if not is_redis_url(url):
            msg = "that is not the address of a Redis server; write redis://host:6379"
            raise InvalidSettings(msg)
        found = _URL.fullmatch(url.strip())
        authority, path, query, fragment = found.groups(default="") if found else ("", "", "", "")
        userinfo, _, hosts = authority.rpartition("@")
        parts = cls(_scheme(url), userinfo, hosts, path, query)
        if "@" in userinfo + path + query + fragment:
            parts.refuse(
                "user and password stand once, before the hosts, and must be percent-encoded: "
                "@ is %40, / is %2F, ? is %3F, # is %23"
            )
        if found is None or fragment or not _is_unicode(url):
            parts.refuse("that is not an address; write redis://host:6379")
        return parts

    def refuse(self, sentence: str) -> NoReturn:
        """Raise the error that says what is wrong with this URL, and hide those that repeat it."""
        msg = f"{self.scheme}://…: {sentence}"
        raise InvalidSettings(msg) from None

    def name_and_db(self, kind: str) -> tuple[str, str]:
        """What the sentinels call their primary, and the database."""
        if kind == "unix":
            return "", "0"
        path = self.path.strip("/")
        name, _, db = path.partition("/") if kind == "sentinel" else ("", "", path)
        if kind == "sentinel" and not name:
            self.refuse("say what the sentinels call the primary: redis+sentinel://host:26379/mymaster")
        return unquote(name), db or "0"

    def socket(self) -> str:
        """The path of a unix socket."""
        path = unquote(self.hosts + self.path)
        if not path or "\0" in path:
            self.refuse("say where the socket is: unix:///path/to/valkey.sock")
        return path

    def servers(self, usual_port: int) -> list[tuple[str, int]]:
        """Hosts and ports."""
        if not self.hosts:
            return [("localhost", usual_port)]
        return [self._server(text, usual_port) for text in self.hosts.split(",")]

    def _server(self, text: str, usual_port: int) -> tuple[str, int]:
        parts = _SERVER.fullmatch(text)
        if parts is None or not text:
            self.refuse("write servers as host:port or [IPv6 address]:port, separated by commas")
        in_brackets, host, number = parts.groups(default="")
        port = int(number) if number else usual_port
        if not 1 <= port <= _MAX_PORT:
            self.refuse(f"the port is a number from 1 to {_MAX_PORT}")
        if parts[1] is None:
            return host.lower() or "localhost", port
        try:
            IPv6Address(in_brackets)
        except ValueError:
            self.refuse("what stands in brackets is no IPv6 address")
        return in_brackets, port


def _is_unicode(text: str) -> bool:
    """Whether text can be sent at all. What the environment holds may be no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    "spread",
    "ssl_ca",
    "ssl_cert",
    "ssl_check",
    "ssl_key",
}
_MAX_DB: Final = 1_000
_MAX_WAIT_MS: Final = 60_000


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
    credentials: Callable[[], ServerAddress] | None = field(default=None, compare=False, repr=False)
    """Returns an address with user, password and certificates as their files contain them now; None without files."""

    def __str__(self) -> str:
        """The shard, without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.path or f"{host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> ServerAddress:
        """The address of one server."""
        return StoreAddress.parse(url).servers[0]

    def at(self, host: str, port: int) -> ServerAddress:
        """Another server with the same credentials."""
        return replace(self, host=host, port=port, path=None)

    def current(self) -> ServerAddress:
        """The same server, with the credentials that its files contain now."""
        if self.credentials is None:
            return self
        now = self.credentials()
        return replace(self, user=now.user, password=now.password, tls=now.tls)

    def handshake(self) -> list[tuple[str, ...]]:
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
    """Some servers, their topology, and how long to wait for them."""

    kind: str
    """Empty for one server; sentinel, cluster or ring."""
    servers: Sequence[ServerAddress]
    """As parts; for Sentinel, the sentinels."""
    primary: ServerAddress
    """The credentials of the servers that hold counters, wherever they are."""
    name: str
    """What sentinels call their primary."""
    deadline: float
    probe_every: float
    on_store_error: OnStoreError
    """For keys without a rule, as are the next."""
    on_overload: OnOverload
    spread: SpreadMode

    @classmethod
    def parse(cls, url: str) -> StoreAddress:
        """Read a URL, or raise `InvalidSettings` with a sentence that names what is wrong but no secret.

        Of files that it names, or that it was read from, new connections see what they hold by then.
        """
        read = cls._parse(url)
        files = [*_Options(_UrlParts.split(url)).files()]
        if isinstance(url, TextFromFile):
            files.append(str(url.file))
        if not files:
            return read
        reread = ReloadedValue("credentials of redis", files, lambda: cls._parse(_read_again(url)), read)
        return read._replace(
            servers=[replace(each, credentials=lambda: reread().servers[0]) for each in read.servers],
            primary=replace(read.primary, credentials=lambda: reread().primary),
        )

    @classmethod
    def _parse(cls, url: str) -> StoreAddress:
        parts = _UrlParts.split(url)
        kind = parts.scheme.partition("+")[2] or ("unix" if parts.scheme == "unix" else "")
        options = _Options(parts)
        name, db = parts.name_and_db(kind)
        user, _, password = parts.userinfo.partition(":")
        base = ServerAddress(
            user=unquote(user) or None,
            password=unquote(password) if password else None,
            db=options.number("db", db, 0, _MAX_DB),
            protocol=options.number("protocol", "2", 2, 3),
            tls=options.tls() if parts.scheme.startswith("rediss") else None,
        )
        if kind == "cluster" and base.db:
            parts.refuse("a cluster has only database 0")
        if kind == "unix":
            servers = [replace(base, path=parts.socket())]
        else:
            servers = [base.at(host, port) for host, port in parts.servers(_PORTS[kind])]
        if not kind and len(servers) > 1:
            parts.refuse("one server is enough here; write redis+cluster:// or redis+ring:// for several")
        if kind == "sentinel":
            # Sentinels have accounts of their own, and no databases.
            user, password = options.text("sentinel_user"), options.text("sentinel_password")
            servers = [replace(each, user=user or None, password=password or None, db=0) for each in servers]
        return cls(
            "" if kind == "unix" else kind,
            servers,
            base,
            name,
            options.number("deadline_ms", "50", 1, _MAX_WAIT_MS) / 1000,
            options.number("probe_ms", "1000", 1, _MAX_WAIT_MS) / 1000,
            options.choice("on_store_error", OnStoreError.ALLOW),
            options.choice("on_overload", OnOverload.WAIT),
            options.choice("spread", SpreadMode.EXACT, among=SPREAD_WORDS),
        )


def _read_again(url: str) -> str:
    return url.read_again() if isinstance(url, TextFromFile) else url


class _Options:
    """What follows the question mark."""

    def __init__(self, parts: _UrlParts) -> None:
        self._refuse = parts.refuse
        given = parse_qsl(parts.query, keep_blank_values=True)
        self._given = dict(given)
        if len(self._given) < len(given):
            self._refuse("an option appears twice")
        if unknown := set(self._given) - _OPTIONS:
            self._refuse(f"unknown option {short_repr(min(unknown))}; known are {', '.join(sorted(_OPTIONS))}")

    def files(self) -> list[str]:
        return [self._given[name] for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in self._given]

    def text(self, name: str) -> str:
        return self._given.get(name, "")

    def number(self, name: str, usual: str, least: int, most: int) -> int:
        text = self._given.get(name, usual)
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not is_number or not least <= int(text) <= most:
            self._refuse(f"{'the database' if name == 'db' else name} is a number from {least} to {most}")
        return int(text)

    def choice(self, name: str, usual: Choice, among: Sequence[Choice] | None = None) -> Choice:
        text = self._given.get(name, usual)
        words = list(type(usual)) if among is None else among
        found = next((word for word in words if word == text), None)
        return found or self._refuse(f"{name} is one of {', '.join(words)}, not {short_repr(text)}")

    def tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._given.get("ssl_ca"))
            if "ssl_cert" in self._given:
                context.load_cert_chain(self._given["ssl_cert"], self._given.get("ssl_key"))
        except (OSError, ValueError) as error:  # no such file, or no such path
            self._refuse(f"the certificates cannot be used: {error}")
        check = self._given.get("ssl_check", "yes")
        if check not in {"yes", "no"}:
            self._refuse(f"ssl_check is yes or no, not {short_repr(check)}")
        if check == "no":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
