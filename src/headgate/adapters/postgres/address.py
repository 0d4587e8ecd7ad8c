"""The address of a database."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from headgate.errors import InvalidSettings

_SCHEMES: Final = ("postgresql", "postgres")
_STATEMENTS: Final = 200
_HOST: Final = r"(?:[^\[\]:@,]*|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{1,5})?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*")
_PORTS: Final = re.compile(r"[0-9]{1,5}(?:,[0-9]{1,5})*|")


class Address(NamedTuple):
    """What asyncpg is told."""

    url: str
    cached_statements: int
    """How many prepared statements a connection may keep."""


def read(url: str) -> Address:
    """``postgresql://…`` as people write it; with ``?pgbouncer=true`` nothing outlives a transaction."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except (AttributeError, TypeError, ValueError):
        parts, given = urlsplit(""), []
    # An address is never repeated in a message: it may hold a password.
    if parts.scheme not in _SCHEMES:
        msg = "that is not the address of a database; write postgresql://user:password@host:5432/name"
        raise InvalidSettings(msg)
    _, at, hosts = parts.netloc.partition("@")
    if "@" in parts.path or parts.fragment or not _HOSTS.fullmatch(hosts if at else parts.netloc):
        msg = (
            "the address of the database cannot be read; write postgresql://user:password@host:5432/name, and in a "
            "password %40 for @, %3A for :, %2F for /, %3F for ?, %23 for #, %25 for %"
        )
        raise InvalidSettings(msg)
    options = dict(given)
    if not _PORTS.fullmatch(options.get("port", "")):
        msg = "port in the address of a database is a number"
        raise InvalidSettings(msg)
    bouncer = options.pop("pgbouncer", "false")
    if bouncer not in {"true", "false"}:
        msg = "pgbouncer in the address of a database is true or false"
        raise InvalidSettings(msg)
    query = f"?{urlencode(options)}" if options else ""
    return Address(url.partition("?")[0] + query, 0 if bouncer == "true" else _STATEMENTS)
