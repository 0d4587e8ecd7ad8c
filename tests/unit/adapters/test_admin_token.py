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
    assert {each.stat().st_mode & 0o777 for each in (folder, folder.parent)} == {0o700}


def test_a_token_that_its_group_can_read_is_made_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Kubernetes gives the files of a volume to a group; the start mends it and says so."""
    token = kept_token(tmp_path)
    file = tmp_path / "admin-token"
    file.chmod(0o660)
    assert kept_token(tmp_path) == token
    assert file.stat().st_mode & 0o777 == 0o600
    assert "readable by its group (mode 0660)" in caplog.text


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602])
def test_a_token_that_others_can_read_stops_the_start(tmp_path: Path, mode: int) -> None:
    """It is no secret any more, so the operator is told what to do."""
    kept_token(tmp_path)
    (tmp_path / "admin-token").chmod(mode)
    with pytest.raises(InvalidSettings, match=rf"mode {mode:04o}\); delete the file"):
        kept_token(tmp_path)


def test_those_who_start_at_once_have_the_same_token(tmp_path: Path) -> None:
    """And never none: a file that another process is still writing is not there yet."""
    for number in range(50):
        with ThreadPoolExecutor(8) as threads:
            tokens = list(threads.map(kept_token, [tmp_path / str(number)] * 8))
        assert len(set(tokens)) == 1
        assert looks_like_token(tokens[0])


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"x", b"hgt_UzP2PtLvokH4L3Sr2M6qt5"])
def test_a_file_without_a_token_stops_the_start(tmp_path: Path, content: bytes) -> None:
    """Nothing, something else, or a token that was cut off: the error names the file."""
    file = tmp_path / "admin-token"
    file.touch(0o600)
    file.write_bytes(content)
    with pytest.raises(InvalidSettings, match="admin-token"):
        kept_token(tmp_path)
