"""Which rate-limit headers an application sends, and under which names."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic

from headgate.core import headers as header_names
from headgate.core.headers import HeaderLines, Reset, T
from headgate.errors import InvalidSettings, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.core.verdict import Verdict

_TOKEN: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class HeaderSet(StrEnum):
    """Which rate-limit headers are sent. `Retry-After` is on every refusal."""

    ALL = "all"
    X_RATELIMIT = "x-ratelimit"
    RATELIMIT = "ratelimit"
    NONE = "none"


def header_set(given: object) -> HeaderSet:
    """The header set with this name."""
    try:
        return HeaderSet(given)  # type: ignore[arg-type] # StrEnum raises ValueError
    except ValueError:
        msg = f"headers must be one of {', '.join(HeaderSet)}, not {short_repr(given)}"
        raise InvalidSettings(msg) from None


def reset_meaning(given: object) -> Reset:
    """What `X-RateLimit-Reset` says, by its name; None is the next moment with more."""
    try:
        return Reset.NEXT if given is None else Reset(given)  # type: ignore[arg-type] # StrEnum raises ValueError
    except ValueError:
        msg = f"reset_header must be one of {', '.join(Reset)}, not {short_repr(given)}"
        raise InvalidSettings(msg) from None


_NAMES: Final[Mapping[HeaderSet, tuple[str, ...]]] = {
    HeaderSet.X_RATELIMIT: (header_names.LIMIT, header_names.REMAINING, header_names.RESET, header_names.COST),
    HeaderSet.RATELIMIT: (header_names.POLICY, header_names.STANDING),
    HeaderSet.NONE: (),
}


def names_in(which: HeaderSet) -> tuple[str, ...]:
    """The names of the headers in a set, beside `Retry-After`."""
    if which is HeaderSet.ALL:
        return (*_NAMES[HeaderSet.X_RATELIMIT], *_NAMES[HeaderSet.RATELIMIT])
    return _NAMES[which]


def own_names(given: Mapping[str, str] | None, which: HeaderSet) -> Mapping[str, str]:
    """An application's own names for headers, by their usual names."""
    known = {name.lower(): name for name in names_in(which)}
    own: dict[str, str] = {}
    for usual, name in (given or {}).items():
        if str(usual).lower() not in known:
            there = ", ".join(known.values()) or "none"
            msg = f"header_names: there is no {short_repr(usual)} among the headers that are sent, which are {there}"
            raise InvalidSettings(msg)
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            msg = f"header_names: {short_repr(name)} is not the name of a header; use letters, digits and hyphens"
            raise InvalidSettings(msg)
        own[known[str(usual).lower()]] = name
    taken = [name.lower() for name in (own.get(usual, usual) for usual in known.values())]
    if len(set(taken)) < len(taken):
        msg = "header_names: two headers have the same name"
        raise InvalidSettings(msg)
    return own


class Headers(Generic[T]):
    """The headers of one set, in the form that a server takes."""

    def __init__(
        self,
        which: HeaderSet,
        name: Callable[[str], T],
        value: Callable[[str], T],
        own: Mapping[str, str] | None = None,
        reset: Reset = Reset.NEXT,
    ) -> None:
        """`name` and `value` convert the names and values of headers; `own` are other names for them, `reset` what
        `X-RateLimit-Reset` says.
        """
        if own:
            usual = name
            name = lambda text: usual(own.get(text, text))  # noqa: E731 (it replaces the other)
        self._lines = HeaderLines(name, value, reset)
        self._nothing = which is HeaderSet.NONE
        self._kept: frozenset[T] | None = None  # all of them
        if which is not HeaderSet.ALL:
            self._kept = frozenset(map(name, (*_NAMES[which], header_names.RETRY_AFTER)))

    def for_verdict(self, verdict: Verdict) -> list[tuple[T, T]]:
        """The headers for a verdict."""
        if self._nothing and verdict.allowed:
            return []
        lines = self._lines.for_verdict(verdict)
        return lines if self._kept is None else [line for line in lines if line[0] in self._kept]
