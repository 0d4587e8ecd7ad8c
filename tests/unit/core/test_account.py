"""Accounts add up."""

from __future__ import annotations

from headgate.core.account import NOTHING, Account


def test_an_account_says_what_became_of_everything() -> None:
    """Whatever was emitted is stored, spooled, dropped or refused."""
    account = Account(stored=5, refused=1, dropped=2, spooled=3)
    assert account.emitted == 11
    assert str(account) == "11 emitted = 5 stored + 3 spooled + 2 dropped + 1 refused"
    assert account + NOTHING == account
    assert (account + account).emitted == 22


def test_what_nobody_can_read_any_more_is_dropped() -> None:
    """A spool that is gone keeps nothing."""
    account = Account(stored=5, refused=1, dropped=2, spooled=3)
    assert account.ended == Account(stored=5, refused=1, dropped=5, spooled=0)
    assert account.ended.emitted == account.emitted
