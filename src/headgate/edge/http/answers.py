"""Verdicts and problems as HTTP answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from headgate.core import problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.verdict import Verdict
    from headgate.edge.problems import Unanswerable

Answer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body, in the order in which RSGI takes them."""

_JSON: Final = ("content-type", "application/json")
_PROBLEM: Final = ("content-type", problem.CONTENT_TYPE)
_NO_STORE: Final = ("cache-control", "no-store")
_encode: Final = msgspec.json.Encoder().encode


def for_verdict(verdict: Verdict) -> Answer:
    """The verdict as JSON and as headers; a denial is a problem document with the verdict in it."""
    body = verdict.as_dict()
    headers = [*verdict.headers().items()]
    if body["allowed"]:
        return 200, [_JSON, *headers], _line(body)
    # Always 429, whatever the rule tells its callers: a 5xx of ours must only ever mean that there is no
    # verdict, because gateways fail open on it. The rule's own status is in the body.
    return 429, [_PROBLEM, *headers], _line(verdict.problem() | body)


def for_problem(unanswerable: Unanswerable) -> Answer:
    """Why there is no verdict."""
    return unanswerable.status, [_PROBLEM, *unanswerable.headers], _line(unanswerable.document())


def for_state(status: int, state: Mapping[str, object]) -> Answer:
    """What the service says about itself, which is only true now."""
    return status, [_JSON, _NO_STORE], _line(state)


def _line(data: object) -> bytes:
    """JSON that ends its line, as terminals like it."""
    return _encode(data) + b"\n"
