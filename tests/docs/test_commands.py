"""Commands that the documentation tells people to type exist."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

import typer.main
from tests.support.shell_page import commands

from headgate.cli.commands import application, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    Fences = Callable[[Path, str], list[tuple[int, str]]]

_SUBSTITUTION: Final = re.compile(r"\$\(([^()]*)\)")
_TARGET: Final = re.compile(r"^(?P<name>[a-z-]+):.*?##", re.MULTILINE)


def _targets(root: Path) -> set[str]:
    return {found["name"] for found in _TARGET.finditer((root / "Makefile").read_text(encoding="utf-8"))}


def _typed(page: Path) -> list[list[str]]:
    return [words for command in commands(page) for words in _commands(command.line)]


def _commands(line: str) -> list[list[str]]:
    """The commands in a line of a shell: those in `$(…)`, and each of a pipe."""
    inner = _SUBSTITUTION.findall(line)
    if inner:
        outer = _SUBSTITUTION.sub("VALUE", line)
        return [words for each in (*inner, outer) for words in _commands(each)]
    words = shlex.shlex(line, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return [each for each in found if each]


def _problem(words: list[str]) -> str | None:
    """What is wrong with a `headgate` command line, or None."""
    command: Any = typer.main.get_command(application())
    rest = words[1:]
    while hasattr(command, "commands"):
        below = command.commands.get(rest[0]) if rest else None
        if below is None and command.invoke_without_command:
            break
        if below is None:
            return f"there is no {' '.join(words)}"
        command, rest = below, rest[1:]
    options = {name for option in command.params for name in option.opts}
    unknown = [word for word in rest if word.startswith("-") and word not in options]
    return f"{' '.join(words)}: no option {unknown}" if unknown else None


def test_make_targets_exist(page: Path, root: Path) -> None:
    """Every `make` command that a page names can be made."""
    named = {words[1] for words in _typed(page) if words[0] == "make"}
    named |= set(re.findall(r"`make ([a-z-]+)`", page.read_text(encoding="utf-8")))
    assert named <= _targets(root)


def test_make_targets_are_explained(root: Path) -> None:
    """Everything that can be made is explained to contributors."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert _targets(root) == set(re.findall(r"^\| `make ([a-z-]+)` \|", text, re.MULTILINE))


def test_headgate_commands_exist(page: Path) -> None:
    """Every `headgate` command that a page shows has a verb and options that exist."""
    problems = [_problem(words) for words in _typed(page) if words[0].endswith("headgate")]
    assert not list(filter(None, problems))


def test_the_readme_shows_the_two_commands(root: Path) -> None:
    """The README begins with `make serve` and `make test`."""
    assert _typed(root / "README.md")[:2] == [["make", "serve"], ["make", "test"]]


def test_the_shown_refusal_is_what_people_see(
    root: Path, fences: Fences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refused rules file in the reference of the command line is refused in those words."""
    ((_, text),) = fences(root / "docs/reference/cli.md", "console")
    rules, _, refusal = text.removeprefix("$ cat rules.yaml\n").partition("$ headgate rules validate rules.yaml\n")
    (tmp_path / "rules.yaml").write_text(rules, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(["rules", "validate", "rules.yaml"]) == 1
    assert capsys.readouterr().err == refusal
