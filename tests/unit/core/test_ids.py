from __future__ import annotations

from headgate.core.ids import new_id


def test_no_two_ids_are_the_same() -> None:
    """Ids are short plain texts, and every one is new."""
    ids = {new_id() for _ in range(10_000)}
    assert len(ids) == 10_000
    assert all(len(name) == 32 and name.isalnum() and name.isascii() for name in ids)
