"""Shells complete commands and options, and the help is grouped by subject."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headgate.cli.commands import GROUPS, SUBJECTS, VERBS, run
from headgate.settings import words_to_complete


def _completed(line: str, shell: str = "bash") -> list[str]:
    """What a shell is offered for the last word of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    asked = {"_HEADGATE_COMPLETE": f"complete_{shell}", **words}
    done = subprocess.run(
        [sys.executable, "-m", "headgate"], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.endswith("\n") else done.stdout.split("\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("headgate ru", "rules"),
        ("headgate rules li", "list"),
        ("headgate rules list --js", "--json"),
        ("headgate near-limits --sh", "--share"),
    ],
)
def test_a_word_is_completed(line: str, offered: str) -> None:
    """Commands, verbs and options."""
    assert _completed(line) == [offered]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_written_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It asks the command itself."""
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_HEADGATE_COMPLETE=complete_" in script
    assert "headgate" in script


def test_without_a_shell_nothing_is_completed() -> None:
    """The words come from the variable that each shell sets."""
    assert words_to_complete({}) is None
    assert words_to_complete({"_HEADGATE_COMPLETE": "complete_bash", "COMP_WORDS": "headgate a b"}) == ["a", "b"]
    assert words_to_complete({"_HEADGATE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "headgate a"}) == ["a"]


def test_every_command_has_a_subject(capsys: pytest.CaptureFixture[str]) -> None:
    """None is left out of the help, and none stands in it twice."""
    named = [name for names in SUBJECTS.values() for name in names]
    assert sorted(named) == sorted([*VERBS, *GROUPS])
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f" {subject} ─") for subject in SUBJECTS]
    assert places == sorted(places)


def test_the_package_is_the_command() -> None:
    """`python -m headgate` works where the command is not on the path."""
    done = subprocess.run([sys.executable, "-m", "headgate", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "headgate 0.1.0\n"
