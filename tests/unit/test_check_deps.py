"""`make check-deps` neither passes nor fails in silence: it says which packages it could not ask about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

TOOL: Final = Path(__file__).parents[2] / "tools" / "check_deps.py"
PINNED: Final = "a==1 \\\n    --hash=sha256:00\n    # via b\nb==2 \\\n    --hash=sha256:01\n"
CLEAN: Final[list[dict[str, Any]]] = [
    {"name": "a", "version": "1", "vulns": []},
    {"name": "b", "version": "2", "vulns": []},
]
SKIPPED: Final[list[dict[str, Any]]] = [{"name": name, "skip_reason": "not found on PyPI"} for name in "ab"]


def _run(
    tmp_path: Path, pypi: list[dict[str, Any]] | None, osv: list[dict[str, Any]] | None, **env: str
) -> tuple[int, str]:
    """Run it with an auditor whose services answer so; None: they cannot be reached."""
    auditor, pinned = tmp_path / "pip-audit", tmp_path / "pinned.txt"
    answers = {"pypi": pypi, "osv": osv}
    auditor.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"found = {answers!r}[sys.argv[sys.argv.index('-s') + 1]]\n"
        "names = [line[0] for line in open(sys.argv[-1]) if line[0].isalnum()]\n"
        "if found is None: sys.exit('a long traceback\\nno such host')\n"
        "print(json.dumps({'dependencies': [each for each in found if each['name'] in names]}))\n"
    )
    auditor.chmod(0o700)
    pinned.write_text(PINNED)
    command = [sys.executable, str(TOOL), str(auditor), str(pinned)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603 (ours)
    assert not ended.stderr
    return ended.returncode, ended.stdout


def test_all_could_be_asked(tmp_path: Path) -> None:
    """One line for each list."""
    assert _run(tmp_path, CLEAN, None, CI="1") == (0, "ok       pinned.txt: 2 packages have no known vulnerability\n")


def test_what_pypi_does_not_know_osv_is_asked_about(tmp_path: Path) -> None:
    """A mirror without advisories is made up for."""
    code, said = _run(tmp_path, [CLEAN[0], SKIPPED[1]], CLEAN, CI="1")
    assert (code, said) == (0, "ok       pinned.txt: 2 packages have no known vulnerability\n")


def test_a_vulnerability_fails(tmp_path: Path) -> None:
    """Its id is named, wherever it was found."""
    bad = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}]}
    for pypi, osv in (([CLEAN[0], bad], None), ([CLEAN[0], SKIPPED[1]], [bad])):
        code, said = _run(tmp_path, pypi, osv)
        assert code == 1
        assert "FAILED   pinned.txt: b 2: CVE-1\n" in said


@pytest.mark.parametrize("pypi", [SKIPPED, None], ids=["mirror", "no network"])
def test_what_could_not_be_asked_is_said(tmp_path: Path, pypi: list[dict[str, Any]] | None) -> None:
    """It is no failure here, and one in CI."""
    code, said = _run(tmp_path, pypi, None)
    assert code == 0
    assert "missing  pinned.txt: " in said
    assert "no such host" in said
    assert "ok " not in said
    assert _run(tmp_path, pypi, None, CI="true")[0] == 1
