"""Accounts add up."""

from __future__ import annotations

from headgate.core.delivery_ledger import NOTHING, DeliveryLedger


def test_an_account_says_what_became_of_everything() -> None:
    """Whatever was emitted is stored, spooled, dropped or refused."""
    ledger = DeliveryLedger(stored=5, refused=1, dropped=2, spooled=3)
    assert ledger.emitted == 11
    assert str(ledger) == "11 emitted = 5 stored + 3 spooled + 2 dropped + 1 refused"
    assert ledger + NOTHING == ledger
    assert (ledger + ledger).emitted == 22


def test_what_cannot_be_read_any_more_is_dropped() -> None:
    """A spool that is gone keeps nothing."""
    ledger = DeliveryLedger(stored=5, refused=1, dropped=2, spooled=3)
    assert ledger.ended == DeliveryLedger(stored=5, refused=1, dropped=5, spooled=0)
    assert ledger.ended.emitted == ledger.emitted
