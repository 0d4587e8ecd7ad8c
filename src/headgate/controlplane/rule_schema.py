"""The JSON Schema of rules files, for editors."""

from __future__ import annotations

from typing import Any


def rule_schema() -> dict[str, Any]:
    """The schema (2020-12). What it cannot say, such as the grammar of limits, `headgate rules validate` does."""
    raise NotImplementedError
