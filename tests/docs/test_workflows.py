"""The workflows run what the pages say that they run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path


def _workflow(root: Path, name: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    text = (root / f".github/workflows/{name}.yml").read_text(encoding="utf-8").replace("\non:", "\nwhen:")
    workflow: dict[str, Any] = yaml.safe_load(text)
    return workflow


def _targets(workflow: dict[str, Any]) -> set[str]:
    """What is made, in all jobs, for all values of the matrix."""
    made: set[str] = set()
    for job in workflow["jobs"].values():
        chosen = job.get("strategy", {}).get("matrix", {}).get("target", ())
        for step in job["steps"]:
            for words in re.findall(r"^make (.+)$", step.get("run", ""), re.MULTILINE):
                made |= {*chosen} if words == "${{ matrix.target }}" else {*words.split()}
    return made


def test_every_workflow_makes_what_there_is(root: Path) -> None:
    """Each `make` in a workflow names a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for file in (root / ".github/workflows").glob("*.yml"):
        assert _targets(_workflow(root, file.stem)) <= targets


def test_the_long_tests_run_every_night(root: Path) -> None:
    """Fuzzing, outages with the rolling upgrade, and the wheel; the upgrade needs a commit of long ago."""
    workflow = _workflow(root, "nightly")
    assert workflow["when"]["schedule"]
    assert {"fuzz", "chaos", "check-wheel"} <= _targets(workflow)
    (checkout,) = [step for step in workflow["jobs"]["nightly"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["fetch-depth"] == 0


def test_a_release_is_tried_with_each_extra(root: Path) -> None:
    """Before it is published, the wheel is installed with each extra alone."""
    assert {"test", "check-wheel"} <= _targets(_workflow(root, "release"))
