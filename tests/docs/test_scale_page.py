"""The page about scale says what was measured and simulated: its tables are those of bench/scale_figures.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench.scale_page import PAGE, tables
from bench.scale_sizing import sizing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """The file."""
    found: dict[str, Any] = json.loads((ROOT / "bench/scale_figures.json").read_text(encoding="utf-8"))
    return found


def test_every_table_is_in_the_page(kept: dict[str, Any]) -> None:
    """Row by row, as the script writes them."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in tables(kept).items():
        assert f"<!-- {name} -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->" in text, (
            f"run: python -m bench.scale write ({name})"
        )


def test_the_file_has_the_figures_of_the_measurements(kept: dict[str, Any]) -> None:
    """What other files of the repository have measured is what this one repeats."""
    found = sizing()
    assert {name: kept[name] for name in found} == found, "run: python -m bench.scale write"


def test_both_scales_have_all_modes(kept: dict[str, Any]) -> None:
    """100,000 and 5 million requests a second, 10 million users, 1,000 rules, 3 regions, eight modes."""
    assert {*kept["topology"]} == {"100000", "5000000"}
    for found in kept["topology"].values():
        deployment = found["deployment"]
        assert (deployment["users"], deployment["rules"], len(deployment["regions"])) == (10_000_000, 1_000, 3)
        modes = [row["mode"] for row in found["modes"]]
        assert modes == ["exact", "deny cache", "leased", "shards", "central", "split", "gossip", "borrow"]
