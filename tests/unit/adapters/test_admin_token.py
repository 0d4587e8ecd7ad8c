"""The admin token of a data directory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.admin_token import kept_token
from headgate.core.api_key import looks_like_token
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    """The next start reads the same one, and no other user can read it."""
    folder = tmp_path / "new" / "data"
    token = kept_token(folder)
    assert looks_like_token(token)
    assert kept_token(folder) == token
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_those_who_start_at_once_have_the_same_token(tmp_path: Path) -> None:
    """And never none: a file that another process is still writing is not there yet."""
    for number in range(50):
        with ThreadPoolExecutor(8) as threads:
            tokens = list(threads.map(kept_token, [tmp_path / str(number)] * 8))
        assert len(set(tokens)) == 1
        assert looks_like_token(tokens[0])


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_file_without_a_token_stops_the_start(tmp_path: Path, content: bytes) -> None:
    """No client could use the API with it, so the error names the file."""
    (tmp_path / "admin-token").write_bytes(content)
    with pytest.raises(InvalidSettings, match="admin-token"):
        kept_token(tmp_path)
