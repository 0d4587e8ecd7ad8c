"""Names that nobody else has, for verdicts, receipts and holders. Nothing is ever decided by them."""

from __future__ import annotations

from secrets import token_hex
from typing import Final

_LETTERS: Final = 32
_TOGETHER: Final = 128
"""Names that are drawn at once: to ask the system for each takes longer than to decide a request."""
_drawn: Final[list[str]] = []


def new_id() -> str:
    """A fresh name; unique across processes, also after a fork (see `draw_anew`)."""
    try:
        return _drawn.pop()
    except IndexError:
        return draw_anew()


def draw_anew() -> str:
    """A fresh name, and others in place of those that were drawn and not used: a process does so after a fork."""
    text = token_hex(_LETTERS // 2 * _TOGETHER)
    mine, *others = [text[at : at + _LETTERS] for at in range(0, len(text), _LETTERS)]
    _drawn[:] = others
    return mine
