"""The page about scale says what was measured and simulated: its figures are those of bench/scale_figures.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bench.scale_page import PAGE, tables
from bench.scale_sizing import sizing
from tests.support.spool import event

from headgate.core.thinning import Thinning
from headgate.simulate.topology.deployment import Deployment

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


def test_the_simulator_charges_an_operation_about_what_was_measured(kept: dict[str, Any]) -> None:
    """Its default is within a third of the newest measurement; the page's columns of cores are by that itself."""
    assert Deployment(rate=1).redis_micros == pytest.approx(kept["unit"]["redis_micros"], rel=1 / 3)


def test_the_events_of_an_attack_are_as_many_as_the_page_says(kept: dict[str, Any]) -> None:
    """10,000 refusals a second, of as many callers: so many events a minute of a process, and bytes a year of five."""
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    said = re.search(r"at most ([\d,]+) a minute under ([\d,]+) refusals a second", text)
    assert said is not None
    most, refusals = (int(each.replace(",", "")) for each in said.groups())
    thinning = Thinning(lambda _: event())
    events = sum(thinning.refuse(number, ()) > 0 for number in range(60 * refusals)) + len(thinning.end_minute())
    assert 0.9 * most < events <= most
    year = re.search(r"stay below (\d+) events a second and \[(\d+) TB a year\]", text)
    assert year is not None
    a_second, terabytes = map(int, year.groups())
    assert a_second == -(-5 * most // 60)
    assert terabytes - 1 < a_second * kept["unit"]["event_bytes"] * 365 * 86_400 / 1e12 < terabytes


def test_the_page_says_how_busy_the_machine_was(kept: dict[str, Any]) -> None:
    """The load that was noted beside the figures of ten million users."""
    said = re.search(r"\(load (\d+)\)", PAGE.read_text(encoding="utf-8"))
    assert said is not None
    assert {round(each["load"]) for each in kept["ten_million"].values()} == {int(said[1])}
