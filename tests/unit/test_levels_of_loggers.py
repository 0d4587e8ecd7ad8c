"""A test that configures logging changes nothing for those after it."""

from __future__ import annotations

import logging


def test_a_framework_sets_a_level() -> None:
    """Litestar does so when an application is made."""
    for name in ("", "headgate"):
        logging.getLogger(name or None).setLevel(logging.INFO)


def test_and_the_next_test_has_the_usual_one() -> None:
    """Whichever runs first: what is logged below a warning is not seen unless a test asks for it."""
    assert not logging.getLogger("headgate").isEnabledFor(logging.INFO)
