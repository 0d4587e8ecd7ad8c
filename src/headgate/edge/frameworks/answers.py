"""What callers of an application are told: headers on every answer, a problem document on a refusal."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from headgate.core import problem
from headgate.errors import InvalidSettings, shown

if TYPE_CHECKING:
    from headgate.core.verdict import Verdict
    from headgate.edge.problems import Unanswerable

    Answer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
    """Status, headers and body."""

_RETRY_AFTER: Final = "Retry-After"


class HeaderSet(StrEnum):
    """Which headers say where a caller stands. `Retry-After` is on every refusal."""

    ALL = "all"
    X_RATELIMIT = "x-ratelimit"
    RATELIMIT = "ratelimit"
    NONE = "none"


def header_set(given: object) -> HeaderSet:
    """The set of that name."""
    try:
        return HeaderSet(given)  # type: ignore[arg-type] # that is the question
    except ValueError:
        msg = f"headers is one of {', '.join(HeaderSet)}, not {shown(given)}"
        raise InvalidSettings(msg) from None


def headers_of(verdict: Verdict, which: HeaderSet) -> list[tuple[str, str]]:
    """The headers for a verdict."""
    if which is HeaderSet.NONE and verdict.allowed:
        return []
    headers = [*verdict.headers().items()]
    if which is HeaderSet.ALL:
        return headers
    return [(name, value) for name, value in headers if name == _RETRY_AFTER or _family(name) is which]


def _family(name: str) -> HeaderSet:
    return HeaderSet.X_RATELIMIT if name.startswith("X-") else HeaderSet.RATELIMIT


def refusal(verdict: Verdict, which: HeaderSet) -> Answer:
    """A refused call's answer, as its rule says."""
    return _answer(verdict.status, headers_of(verdict, which), verdict.problem())


def unanswerable(reason: Unanswerable) -> Answer:
    """The answer to a call that no rule could be asked about."""
    return _answer(reason.status.value, [*reason.headers], reason.document())


def _answer(status: int, headers: list[tuple[str, str]], document: dict[str, object]) -> Answer:
    body = json.dumps(document).encode() + b"\n"
    kind = ("Content-Type", problem.CONTENT_TYPE)
    return status, [kind, ("Content-Length", str(len(body))), *headers], body
