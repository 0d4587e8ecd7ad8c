"""Unique random ids for verdicts, receipts and holders. Nothing is ever decided by them."""

from __future__ import annotations

from secrets import token_hex
from typing import Final

_LETTERS: Final = 32
_DRAWN_AT_ONCE: Final = 128
"""Ids that are drawn at once: one system call for each would take longer than to decide a request."""
_drawn: Final[list[str]] = []


def new_id() -> str:
    """A new id; unique across processes, also after a fork (see `draw_anew`)."""
    try:
        return _drawn.pop()
    except IndexError:
        return draw_anew()


def draw_anew() -> str:
    """A new id, and others in place of those that were drawn and not used; a process calls this after a fork."""
    text = token_hex(_LETTERS // 2 * _DRAWN_AT_ONCE)
    mine, *others = [text[at : at + _LETTERS] for at in range(0, len(text), _LETTERS)]
    _drawn[:] = others
    return mine
