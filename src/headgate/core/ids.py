"""Names that nobody else has, for verdicts, receipts and holders. Nothing is ever decided by them."""

from __future__ import annotations

from secrets import token_hex


def new_id() -> str:
    """A fresh name; unique across processes, also after a fork."""
    return token_hex(16)
