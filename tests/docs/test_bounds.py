"""The page of bounds has those that are in the code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from headgate.core.path import MAX_PATH
from headgate.edge.acceptor import CloseReason
from headgate.edge.fairness import SLICE_SECONDS
from headgate.edge.http.application import Bounds
from headgate.edge.http.bodies import MAX_ATTRIBUTES, MAX_CHECKS
from headgate.edge.http.server import MAX_HELD_BYTES
from headgate.edge.rls.decisions import MAX_DESCRIPTORS, MAX_ENTRIES
from headgate.protocols.http1.messages import HeadLimits

if TYPE_CHECKING:
    from pathlib import Path


def test_every_reason_is_documented(root: Path) -> None:
    """Why connections are closed, as the metric and the log name it."""
    page = (root / "docs/reference/bounds.md").read_text(encoding="utf-8")
    table = page.partition("## Closed connections")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(CloseReason)


@pytest.mark.parametrize(
    ("row", "bound"),
    [
        ("work on connections in one turn of the event loop", f"{SLICE_SECONDS * 1_000:g} ms"),
        ("time that answers wait for a client that does not read them", f"{Bounds().write_seconds:g} s"),
        ("headers", f"{HeadLimits().headers}"),
        ("path in the body of a check, or of a `Request` in the library", f"{MAX_PATH:,} characters"),
        ("attributes of a check", f"{MAX_ATTRIBUTES}"),
        ("checks of a batch", f"{MAX_CHECKS:,}"),
        ("descriptors of a question; entries of a descriptor", f"{MAX_DESCRIPTORS}; {MAX_ENTRIES}"),
        ("both, of all connections of a process", f"{MAX_HELD_BYTES // 2**20} MiB"),
    ],
)
def test_bounds_are_those_of_the_code(root: Path, row: str, bound: str) -> None:
    """Each row says the number that holds."""
    page = (root / "docs/reference/bounds.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {re.escape(row)} \| {re.escape(bound)}\b", page, re.MULTILINE)
