"""The token that a call to the admin API comes with."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.problems import Unanswerable

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_TOKEN: Final = 1_024


def token_of(given: Sequence[bytes]) -> str:
    """The bearer's token in the `Authorization` headers of a call; `Unanswerable` if there is none."""
    if not given:
        sentence = "send a token: Authorization: Bearer hgt_…"
        raise unauthorized(sentence)
    scheme, _, token = given[0].decode("latin-1").strip().partition(" ")
    token = token.strip(" ")
    good = token.isascii() and token.isprintable() and " " not in token and 0 < len(token) <= _MAX_TOKEN
    if len(given) > 1 or scheme.lower() != "bearer" or not good:
        sentence = "the header is malformed; send one: Authorization: Bearer hgt_…"
        raise unauthorized(sentence, ', error="invalid_request"')
    return token


def unauthorized(sentence: str, more: str = "") -> Unanswerable:
    """The answer to a call whose token is missing or not good."""
    return Unanswerable(HTTPStatus.UNAUTHORIZED, sentence, ("www-authenticate", f'Bearer realm="headgate"{more}'))
