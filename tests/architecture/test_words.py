"""The product uses the words of the field: retired words stay out of source, logs, documentation and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.architecture import words
from tests.architecture.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("word", [*words.TEXT, *words.NAMES])
def test_a_retired_word_does_not_come_back(word: str) -> None:
    """No line of the source and the documentation has a retired word; the table says what to write instead."""
    instead = words.TEXT.get(word) or words.NAMES[word]
    here = [each for each in words.found() if each.word == word]
    lines = [f"{each.path}:{each.line}: {each.text}" for each in here]
    assert not here, "\n".join([f"write {instead} instead of {word}:", *lines])


@pytest.mark.parametrize("word", words.TEXT)
def test_a_retired_word_does_not_come_back_in_tests(word: str) -> None:
    """No line of the tests and the benchmarks has a retired word; the table says what to write instead."""
    here = [each for each in words.found_in_tests() if each.word == word]
    lines = [f"{each.path}:{each.line}: {each.text}" for each in here]
    assert not here, "\n".join([f"write {words.TEXT[word]} instead of {word}:", *lines])


def test_every_exception_is_used_and_has_a_reason() -> None:
    """An allowed word names a file that exists, and says why the word is right there."""
    assert all(reason for reason in words.ALLOWED.values())
    assert [path for _, path in words.ALLOWED if not (ROOT / path).exists()] == []


def test_retired_words_are_found_wherever_they_hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, comments, messages and phrases over two lines are seen; parts of other words are not."""
    monkeypatch.setattr(words, "ROOT", tmp_path)
    file = tmp_path / "example.py"
    file.write_text(
        "# the rules in\n# force\nclass NobodyAsked: ...\nlet_go = 'whoever calls'\nunderwater = letgo = indoors = 1\n",
        encoding="utf-8",
    )
    assert {(each.word, each.line) for each in words.in_text(file)} == {
        ("in force", 1),
        ("nobody", 3),
        ("lets? go", 4),
        ("whoever", 4),
    }
    file.write_text("_place = 1\nreplaced = _place\nMOST_CALLS = MAX_CALLS = 'asked'\n", encoding="utf-8")
    assert [each.line for each in words.in_names(file)] == [1, 2, 3]
