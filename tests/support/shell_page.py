"""A page of the documentation, typed into a shell line by line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support.service import HEADGATE

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>console|yaml)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_FILE: Final = re.compile(r"# (?P<name>[\w-]+\.yaml)\n")
_END: Final = re.compile(r"^\x01(\d+)\n", re.MULTILINE)
DIFFERENCES: Final = re.compile(r"rules plan |\bdoctor\b|\bstatus\b|reconcile")
"""Commands that answer 2 if they found something, which is not a failure."""


class Typed(NamedTuple):
    """A command, what the page shows of its output, and how it ended."""

    command: str
    shown: list[str]
    output: str
    code: int

    @property
    def problem(self) -> str | None:
        """What is not as the page leads people to expect."""
        fine = {0, 2} if DIFFERENCES.search(self.command) else {0}
        if self.code not in fine:
            return f"$ {self.command}\nended with {self.code}:\n{self.output}"
        missing = [line for line in self.shown if line not in self.output]
        return f"$ {self.command}\ndoes not show {missing}:\n{self.output}" if missing else None


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """Every command of a page, with the lines that the page shows of its output."""
    typed: list[tuple[str, list[str]]] = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["language"] == "yaml":
            continue
        for line in dedent(block["text"]).splitlines():
            if line.startswith("$ "):
                typed.append((line.removeprefix("$ "), []))
            else:
                typed[-1][1].append(line)
    return typed


def follow(
    page: Path,
    folder: Path,
    environment: Mapping[str, str],
    addresses: Mapping[str, str],
    skip: re.Pattern[str] | None = None,
) -> list[Typed]:
    """Type a page into one shell, in an empty folder. A YAML block that begins with a file's name is that file."""
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        text = dedent(block["text"])
        if name := _FILE.match(text):
            (folder / name["name"]).write_text(text, encoding="utf-8")
    typed = [each for each in commands(page) if skip is None or not skip.match(each[0].removeprefix(".venv/bin/"))]
    script = "".join(f"{command}\nprintf '\\001%s\\n' $?\n" for command, _ in typed)
    for shown, real in addresses.items():
        script = script.replace(shown, real)
    done = subprocess.run(
        ["bash"],  # noqa: S607 (whichever there is)
        input=script,
        cwd=folder,
        env={**environment, "PATH": f"{Path(HEADGATE).parent}:{os.environ['PATH']}", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    parts = _END.split(done.stdout)  # output, exit code, output, exit code, …
    outputs = list(zip(parts[::2], parts[1::2], strict=False))
    assert len(outputs) == len(typed), done.stdout
    return [
        Typed(command, shown, output, int(code))
        for (command, shown), (output, code) in zip(typed, outputs, strict=True)
    ]
