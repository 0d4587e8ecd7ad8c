"""Where a Redis server is and how to get in, read from a URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from headgate.errors import InvalidSettings

REDIS_SCHEMES: Final = ("redis", "rediss", "redis+unix", "unix")
_OPTIONS: Final = {"db", "protocol", "ssl_ca", "ssl_cert", "ssl_key", "ssl_check"}
_HIGHEST_DB: Final = 1_000


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
        """Read ``redis://[user:password@]host[:port][/db]``, ``rediss://…`` or ``unix:///path.sock``."""
        parts = urlsplit(url)
        shown = f"{parts.scheme}://{parts.hostname or parts.path}"
        if parts.scheme not in REDIS_SCHEMES:
            msg = f"{shown!r} is not the address of a Redis server; write redis://host:6379"
            raise InvalidSettings(msg)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := set(options) - _OPTIONS:
            msg = f"{shown!r}: unknown option {', '.join(sorted(unknown))}; known are {', '.join(sorted(_OPTIONS))}"
            raise InvalidSettings(msg)
        try:
            port = parts.port or 6379
        except ValueError:
            msg = f"{shown!r}: the port is a number from 1 to 65535"
            raise InvalidSettings(msg) from None
        is_unix = parts.scheme.endswith("unix")
        db = options.get("db") or ("" if is_unix else parts.path.strip("/")) or "0"
        return cls(
            host=parts.hostname or "localhost",
            port=port,
            path=(parts.netloc.rpartition("@")[2] + parts.path) if is_unix else None,
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            db=_number(shown, "the database", db, 0, _HIGHEST_DB),
            protocol=_number(shown, "protocol", options.get("protocol", "2"), 2, 3),
            tls=_tls(shown, options) if parts.scheme == "rediss" else None,
        )

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


def _number(shown: str, what: str, text: str, least: int, most: int) -> int:
    if text.isascii() and text.isdigit() and least <= int(text) <= most:
        return int(text)
    msg = f"{shown!r}: {what} is a number from {least} to {most}, not {text!r}"
    raise InvalidSettings(msg)


def _tls(shown: str, options: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except (OSError, ssl.SSLError) as error:
        msg = f"{shown!r}: the certificates cannot be used: {error}"
        raise InvalidSettings(msg) from error
    check = options.get("ssl_check", "yes")
    if check not in {"yes", "no"}:
        msg = f"{shown!r}: ssl_check is yes or no, not {check!r}"
        raise InvalidSettings(msg)
    if check == "no":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
