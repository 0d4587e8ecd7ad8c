"""The URL of a Redis store, taken apart.

Not by `urllib.parse.urlsplit`: it knows no lists of hosts, refuses other brackets in every
version of Python, and what it says repeats what was written. Here nothing of a URL but its
scheme is ever repeated, because a password that was not encoded may end up in any part.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final, NamedTuple, NoReturn
from urllib.parse import unquote

from headgate.errors import InvalidSettings

_KINDS: Final = ("", "+sentinel", "+cluster", "+ring")
REDIS_SCHEMES: Final = (
    "unix",
    "redis+unix",
    *(f"{start}{kind}" for start in ("redis", "rediss") for kind in _KINDS),
)
_URL: Final = re.compile(r"[^:]*://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SERVER: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^\s\[\]:]*))(?::([0-9]{1,5})?)?")
_HIGHEST_PORT: Final = 65_535


def is_redis_url(url: object) -> bool:
    """Whether the scheme of a URL is one of ours; the rest may be anything."""
    return isinstance(url, str) and _scheme(url) in REDIS_SCHEMES


def _scheme(url: str) -> str:
    return url.strip().partition(":")[0].lower()


class Written(NamedTuple):
    """The parts of a URL, as they were written."""

    scheme: str
    userinfo: str
    hosts: str
    path: str
    query: str

    @classmethod
    def split(cls, url: str) -> Written:
        """Take a URL apart, or raise `InvalidSettings`."""
        if not is_redis_url(url):
            msg = "that is not the address of a Redis server; write redis://host:6379"
            raise InvalidSettings(msg)
        parts = _URL.fullmatch(url.strip())
        place, path, query, fragment = parts.groups(default="") if parts else ("", "", "", "")
        userinfo, _, hosts = place.rpartition("@")
        written = cls(_scheme(url), userinfo, hosts, path, query)
        if "@" in userinfo + path + query + fragment:
            written.refuse(
                "user and password stand once, before the hosts, and must be percent-encoded: "
                "@ is %40, / is %2F, ? is %3F, # is %23"
            )
        if parts is None or fragment or not _is_unicode(url):
            written.refuse("that is not an address; write redis://host:6379")
        return written

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
            self.refuse("write servers as host:port or [IPv6 address]:port, and commas between them")
        in_brackets, host, number = parts.groups(default="")
        port = int(number) if number else usual_port
        if not 1 <= port <= _HIGHEST_PORT:
            self.refuse(f"the port is a number from 1 to {_HIGHEST_PORT}")
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
