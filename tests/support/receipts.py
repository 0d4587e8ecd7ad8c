"""Receipts as callers get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.decision import Receipt
from headgate.core.ids import new_id

if TYPE_CHECKING:
    from headgate.core.decision import Decision, Hit


def receipt_of(hit: Hit, decision: Decision) -> Receipt:
    """The receipt for all of an admission."""
    return Receipt(hit.key, hit.meter, decision.stamp, hit.cost, hit.holder or new_id())
