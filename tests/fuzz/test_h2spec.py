"""The conformance suite h2spec against our gRPC server: every case that fails is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fuzz.deviations import H2SPEC, PAGE
from tests.fuzz.h2spec import failures, find_h2spec


@pytest.mark.skipif(find_h2spec() is None, reason="h2spec is not there; `make fuzz` installs it where Go is")
def test_h2spec_fails_only_where_the_page_says_why() -> None:
    """The cases that do not get the frame that they expect are those that the page explains."""
    program = find_h2spec()
    assert program is not None
    count, failed = failures(program)
    assert count >= 145
    assert failed == H2SPEC


def test_the_page_explains_every_case() -> None:
    """The page has a row for each of these cases, and for no other."""
    page = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `((?:generic|http2|hpack)/[^`]+)` \|", page, re.MULTILINE)) == H2SPEC
