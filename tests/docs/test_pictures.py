"""Each algorithm has a page and a picture, drawn from what it answers today."""

from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Algorithm

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def histories(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 (a module)
    """The module `docs/histories.py`, which is a script's and not a package's."""
    spec = importlib.util.spec_from_file_location("histories", root / "docs/histories.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "histories", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("algorithm", Algorithm)
def test_every_algorithm_has_a_page_with_a_picture(algorithm: Algorithm, root: Path) -> None:
    """Every algorithm has a page that shows its picture and says which file it describes."""
    page = (root / f"docs/algorithms/{algorithm}.md").read_text(encoding="utf-8")
    assert f"]({algorithm}.svg)" in page
    assert f"src/headgate/core/algorithms/{algorithm}.py" in page
    assert (root / f"docs/algorithms/{algorithm}.svg").is_file()
    assert f"(docs/algorithms/{algorithm}.md)" in (root / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("algorithm", Algorithm)
def test_pictures_show_what_the_algorithms_answer(algorithm: Algorithm, root: Path, histories: Any) -> None:  # noqa: ANN401 (a module)
    """A picture was drawn from the answers that its algorithm gives today; `make pictures` draws it again."""
    picture = (root / f"docs/algorithms/{algorithm}.svg").read_text(encoding="utf-8")
    assert f"drawn from the answers {histories.fingerprint(algorithm)}" in picture


def _most_within(times: list[float], span: float) -> int:
    return max(sum(start <= time < start + span for time in times) for start in times)


def test_the_three_windows_differ_as_their_pages_say(histories: Any) -> None:  # noqa: ANN401 (a module)
    """Of the same arrivals the fixed window admits ten within six seconds, the log at most five in any ten."""
    passed = {
        algorithm: [answer.at for answer in histories.answers(algorithm) if answer.allowed]
        for algorithm in (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.SLIDING_WINDOW_LOG)
    }
    assert _most_within(passed[Algorithm.FIXED_WINDOW], 6) == 10
    assert 5 < _most_within(passed[Algorithm.SLIDING_WINDOW_COUNTER], 10) < 10
    assert _most_within(passed[Algorithm.SLIDING_WINDOW_LOG], 10) == 5


def test_the_leaky_bucket_lets_one_out_each_second(histories: Any) -> None:  # noqa: ANN401 (a module)
    """In the picture of the leaky bucket, requests leave at least a second apart."""
    out = [answer.at + answer.delay for answer in histories.answers(Algorithm.LEAKY_BUCKET) if answer.allowed]
    assert all(later - earlier >= 1 for earlier, later in pairwise(out))


def test_the_slots_picture_tells_its_story(histories: Any) -> None:  # noqa: ANN401 (a module)
    """In the picture of slots, D and F are refused, and B, which dies, is forgotten six seconds later."""
    slots = {slot.name: slot for slot in histories.slots()}
    assert [name for name, slot in slots.items() if not slot.allowed] == ["D", "F"]
    assert slots["B"].died
    assert slots["B"].ended == pytest.approx(slots["B"].asked + 6)
