"""The page of findings has what `headgate doctor` can find, in its own words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headgate.adapters.redis.inspection import CHANGING, COUNTING
from headgate.cli.diagnosis.catalog import KINDS

if TYPE_CHECKING:
    from pathlib import Path

ROW = re.compile(r"^\| `([a-z-]+)` \| (\w+) \| (.*) \| (.*) \|$", re.MULTILINE)


def test_every_finding_is_on_the_page(root: Path) -> None:
    """With severity, meaning and remedy as the source has them, and no other finding."""
    text = (root / "docs/reference/doctor.md").read_text(encoding="utf-8").replace(r"\|", "¦")
    rows = {
        code: (severity, meaning, remedy.replace("¦", "|")) for code, severity, meaning, remedy in ROW.findall(text)
    }
    assert rows == {code: (kind.severity.value, kind.meaning, kind.remedy) for code, kind in KINDS.items()}


def test_every_remedy_is_a_sentence() -> None:
    """It begins with a capital or a command, ends with a full stop, and says what to do."""
    for code, kind in KINDS.items():
        assert re.match(r"[A-Z`]", kind.remedy), code
        assert kind.remedy.endswith("."), code


def test_the_rights_are_those_that_people_are_told_to_give(root: Path) -> None:
    """What is looked for is what the page on Redis grants."""
    text = (root / "docs/how-to/use-redis.md").read_text(encoding="utf-8")
    counters, changes = (line for line in text.splitlines() if line.startswith("$ valkey-cli ACL SETUSER"))
    assert set(re.findall(r"\+(\w+)", counters)) - {"wait"} == set(COUNTING)
    assert set(re.findall(r"\+(\w+)", changes)) == set(CHANGING)
