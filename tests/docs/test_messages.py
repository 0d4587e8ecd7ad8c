"""The page of all messages is the one that `make messages` writes."""

from __future__ import annotations

from tools.messages import PAGE, page, read_messages


def test_the_page_of_messages_is_up_to_date() -> None:
    """Every log line and every error message is in docs/reference/messages.md as the source has it."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make messages`"


def test_messages_are_found_in_every_form() -> None:
    """Log lines, raised errors, problems with a field and messages of the command line are all on the page."""
    found = read_messages()
    kinds = {message.kind for message in found}
    assert {"ERROR", "WARNING", "INFO", "InvalidSettings", "StoreError", "problem", "command line"} <= kinds
    assert len(found) > 500
