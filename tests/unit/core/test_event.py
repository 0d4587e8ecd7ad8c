"""What an event keeps of long texts."""

from __future__ import annotations

from headgate.core.event import _short


def test_a_text_is_cut_only_if_it_is_too_long() -> None:
    """A text of just the allowed length stays as it is; one more character, and it ends with a digest."""
    assert _short("a" * 40, 40) == "a" * 40
    cut, other = _short("a" * 41, 40), _short("a" * 42, 40)
    assert len(cut) == len(other) == 40
    assert "#" in cut
    assert cut != other
