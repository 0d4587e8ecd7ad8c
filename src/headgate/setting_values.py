"""What settings can be: from the text of a variable or an option to its value, or what to write instead."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Network: TypeAlias = IPv4Network | IPv6Network
_ALL_IPV4: Final = tuple(map(ip_network, ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Forms of IPv6 that stand for all IPv4 addresses; 0.0.0.0/0 says that."""
_REGION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class LogLevel(StrEnum):
    """From how important on something is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


class Role(StrEnum):
    """What a service does."""

    ALL = "all"
    """Everything."""
    DECISIONS = "decisions"
    """It decides; another service on the same database has the admin API and looks after the database."""
    ADMIN = "admin"
    """It has the admin API and the dashboard, and looks after the database; it decides nothing."""

    @property
    def decides(self) -> bool:
        """Whether it answers checks."""
        return self is not Role.ADMIN

    @property
    def administers(self) -> bool:
        """Whether it has the admin API, where there is a database."""
        return self is not Role.DECISIONS


class OnUnknownIdentity(StrEnum):
    """What is assumed of a caller whose record cannot be read."""

    LAST_KNOWN = "last_known"
    """The last record known, however old; without one, the default tier."""
    DEFAULT = "default"
    """The default tier."""
    STATED = "stated"
    """The tier that the caller or its token states; without one, the default tier."""


class ResetHeader(StrEnum):
    """Which moment `X-RateLimit-Reset` says."""

    NEXT = "next"
    FULL = "full"


class OnForeignApiKey(StrEnum):
    """What a stated API key is worth that headgate has not issued."""

    ADDRESS = "address"
    """Nothing: its bearer is counted by address, as one who invents keys is."""
    COUNT = "count"
    """It is the caller's own name for a key, and is counted under a digest of it."""


class RlsOnOverload(StrEnum):
    """What Envoy is told of a call that was not decided because too many were in flight."""

    UNAVAILABLE = "unavailable"
    """An error, so that its `failure_mode_deny` decides."""
    OVER_LIMIT = "over_limit"
    """That the call may not pass."""


class OnNoRules(StrEnum):
    """What is answered while no rule set is known."""

    DENY = "deny"
    ALLOW = "allow"


class TextFromFile(str):
    """The text of a setting that a file holds, which may have another text later: a password that was changed."""

    __slots__ = ("_of_file", "file")

    file: Path
    _of_file: Callable[[str], str]
    """From all that the file holds to this text."""

    @classmethod
    def read(cls, file: Path) -> TextFromFile:
        """What the file holds now; raises `OSError`, or `ValueError` if that is no text."""
        return cls._made(file, str, file.read_text(encoding="utf-8").strip())

    @classmethod
    def _made(cls, file: Path, of_file: Callable[[str], str], text: str) -> TextFromFile:
        made = cls(of_file(text))
        made.file, made._of_file = file, of_file
        return made

    def read_again(self) -> TextFromFile:
        """The same part of what the file holds by now."""
        return self._made(self.file, self._of_file, TextFromFile.read(self.file))

    def changed(self, change: Callable[[str], str]) -> TextFromFile:
        """What a function makes of it, now and whenever it is read again."""
        of_file = self._of_file
        made = TextFromFile(change(self))
        made.file, made._of_file = self.file, lambda text: change(of_file(text))
        return made


def text_value(text: str) -> str:
    """Any text."""
    return text


def short_text(most: int) -> Callable[[str], str]:
    """A text of at most so many characters, all of them printable."""

    def read(text: str) -> str:
        if len(text) <= most and text.isprintable():
            return text
        msg = f"up to {most} printable characters"
        raise ValueError(msg)

    return read


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        msg = f"a whole number from {least} to {most}"
        raise ValueError(msg)

    return read


def seconds(most: int) -> Callable[[str], float]:
    """A number of seconds up to `most`."""

    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if 0 <= seconds <= most:
            return seconds
        msg = f"a number of seconds from 0 to {most}"
        raise ValueError(msg)

    return read


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, at least one."""
    found = tuple(name for name in (part.strip() for part in text.split(",")) if name)
    if not found:
        msg = "names separated by commas"
        raise ValueError(msg)
    return found


def names_up_to(most: int) -> Callable[[str], tuple[str, ...]]:
    """A reader for so many names at most, separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        found = names(text)
        if len(found) > most:
            msg = f"at most {most} names separated by commas"
            raise ValueError(msg)
        return found

    return read


def region_urls(text: str) -> tuple[tuple[str, str], ...]:
    """Regions and the addresses of their stores, separated by spaces, because an address may have commas."""
    pairs = tuple((name, url) for name, _, url in (part.partition("=") for part in text.split()))
    if all(_REGION.fullmatch(name) and "://" in url for name, url in pairs) and len(dict(pairs)) == len(pairs):
        if isinstance(text, TextFromFile):  # whose passwords may change
            return tuple((name, text.changed(partial(_url_of_region, name))) for name, _ in pairs)
        return pairs
    msg = "regions and the addresses of their stores, each region once, as in eu=redis://10.0.0.1 us=redis://10.1.0.1"
    raise ValueError(msg)


def _url_of_region(name: str, text: str) -> str:
    urls = dict(region_urls(str(text)))
    if name not in urls:
        msg = f"it no longer has the region {name}"
        raise ValueError(msg)
    return urls[name]


def networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks separated by commas."""
    try:
        found = tuple(map(ip_network, names(text)))
    except ValueError:
        found = ()
    if found and not any("%" in str(each) or each in _ALL_IPV4 for each in found):
        return found
    msg = "addresses and networks separated by commas, as in 10.0.0.0/8, 192.0.2.7"
    raise ValueError(msg)


def one_of(choices: type[StrEnum]) -> Callable[[str], StrEnum]:
    """One of a few words."""

    def read(text: str) -> StrEnum:
        try:
            return choices(text.lower())
        except ValueError:
            msg = f"one of {', '.join(choices)}"
            raise ValueError(msg) from None

    return read


def yes_or_no(text: str) -> bool:
    """``yes`` or ``no``."""
    if text.lower() not in {"yes", "no"}:
        msg = "yes or no"
        raise ValueError(msg)
    return text.lower() == "yes"


def address(text: str) -> str:
    """The address of a service. It is said in messages, so no password is a part of it."""
    if "@" in text:
        msg = "an address without user and password, such as http://127.0.0.1:8080"
        raise ValueError(msg)
    return address_with_user(text)


def address_with_user(text: str) -> str:
    """The address of a service, perhaps with user and password."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if good and not parts.query and not parts.fragment:
        return text.rstrip("/")
    msg = "an address such as http://127.0.0.1:8080"
    raise ValueError(msg)
