"""A page of the documentation, typed into a shell line by line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support.service import HEADGATE

from headgate.adapters.embedded import postgres

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>console|yaml|sql|text)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_FILE: Final = re.compile(r"# (?P<name>[\w-]+\.yaml)\n")
_END: Final = re.compile(r"\x01(\d+)\n")
_SERVICE: Final = re.compile(
    r"^(?P<settings>(?:[A-Z_]+=\S* )*)(?P<command>(?:\.venv/bin/)?headgate (?:serve|gateway)\b.*)"
)
"""A command that runs until it is stopped: people type what follows in another terminal."""
DIFFERENCES: Final = re.compile(r"rules plan |\bdoctor\b|\bstatus\b|reconcile|simulate")
"""Commands that answer 2 if they found something, which is not a failure."""
_REFUSED: Final = 22
"""What curl ends with, as it is called here, if the answer is a status from 400."""
_PATIENCE: Final = 300.0
"""Seconds after which a page should have been typed, on a machine that is busy with other tests."""
_SHELL: Final = r"""
shopt -s expand_aliases
set -o pipefail
services=()
curl() { command curl --fail-with-body "$@"; }
headgate() {  # does what it says: a service of the same page archives soon after its start
  local errors=$(mktemp) code
  for _ in $(seq 100); do
    command headgate "$@" 2>"$errors"
    code=$?
    grep -q 'try again when it has finished' "$errors" || break
    sleep 0.2
  done
  cat "$errors" >&2
  rm "$errors"
  return $code
}
stop() { kill "${services[@]}"; wait; services=(); } 2>/dev/null
trap stop EXIT
started() {  # shows what a service says until it is ready, and reads on, so that it never waits for a reader
    services+=($!)
    exec {said}<"$pipe"
    local shown=$(sed -u "/$1/q" <&$said)
    printf '%s\n' "$shown"
    cat <&$said >/dev/null &
    [[ $shown == *"$1"* ]]
}
"""


class Command(NamedTuple):
    """A command of a page, what the page shows of its output, and the block it stands in."""

    line: str
    shown: list[str]
    block: int


class Typed(NamedTuple):
    """A command, what the page shows of its output, and how it ended."""

    command: str
    shown: list[str]
    output: str
    code: int

    @property
    def problem(self) -> str | None:
        """What is not as the page leads people to expect."""
        if self.code not in self._expected:
            return f"$ {self.command}\nended with {self.code}:\n{self.output}"
        missing = [line for line in self.shown if line not in self.output]
        return f"$ {self.command}\ndoes not show {missing}:\n{self.output}" if missing else None

    @property
    def _expected(self) -> set[int]:
        if any(line.startswith("headgate: ") for line in self.shown):
            return {0, 1} if " disable " in self.command else {1}  # which warns that the file brings it back
        if self.shown and self.command.startswith("curl "):
            return {0, _REFUSED}  # a refusal that the page shows
        return {0, 2} if DIFFERENCES.search(self.command) else {0}


def commands(page: Path) -> list[Command]:
    """Every command of a page; one that goes on in the next line ends in a backslash. SQL is typed into psql."""
    typed: list[Command] = []
    for number, block in enumerate(_BLOCK.finditer(page.read_text(encoding="utf-8"))):
        text = dedent(block["text"])
        if block["language"] == "sql":
            typed += [Command(_in_psql(line), [], number) for line in text.splitlines()]
        if block["language"] != "console":
            continue
        for line in text.replace("\\\n", "").splitlines():
            if line.startswith("$ "):
                typed.append(Command(line.removeprefix("$ "), [], number))
            else:
                typed[-1].shown.append(line)
    return typed


def _in_psql(statement: str) -> str:
    database = "postgres" if statement.startswith("CREATE ") else "headgate"
    return f'psql -X -v ON_ERROR_STOP=1 -d {database} -c "{statement}"'


def follow(
    page: Path,
    folder: Path,
    environment: Mapping[str, str],
    addresses: Mapping[str, str],
    left_out: Iterable[re.Pattern[str]] = (),
) -> list[Typed]:
    """Type a page into one shell, in an empty folder. A YAML block that begins with a file's name is that file.

    A service runs until a later block starts another one, and at most until the end of the page.
    """
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        text = dedent(block["text"])
        if name := _FILE.match(text):
            (folder / name["name"]).write_text(text, encoding="utf-8")
    typed = [each for each in commands(page) if not any(pattern.match(each.line) for pattern in left_out)]
    script = _script(typed)
    for shown, real in addresses.items():
        script = script.replace(shown, real)
    file = folder.parent / f"{folder.name}.sh"
    file.write_text(script, encoding="utf-8")
    outputs = _outputs(_output_of(file, folder, environment), len(typed))
    return [Typed(each.line, each.shown, *output) for each, output in zip(typed, outputs, strict=True)]


def _script(typed: Sequence[Command]) -> str:
    lines = [_SHELL]
    running = -1
    for number, each in enumerate(typed):
        service = _SERVICE.match(each.line)
        if service and running not in {-1, each.block}:
            lines.append("stop")
        if service:
            running = each.block
            lines += [
                f'pipe="$PWD-{number}.pipe"; mkfifo "$pipe"',
                f'{service["settings"]}exec {service["command"]} >"$pipe" 2>&1 &',
                "started 'the gateway listens'" if "headgate gateway" in each.line else "started ctrl-c",
            ]
        else:
            lines.append(each.line)
        lines.append("printf '\\001%s\\n' $?")
    return "\n".join(lines) + "\n"


def _output_of(script: Path, folder: Path, environment: Mapping[str, str]) -> str:
    path = f"{Path(HEADGATE).parent}:{postgres.programs(Path('none'))}:{os.environ['PATH']}"
    shell = subprocess.Popen(  # noqa: S603 (our own documentation)
        ["bash", str(script)],  # noqa: S607 (whichever there is)
        cwd=folder,
        env={**environment, "PATH": path, "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return shell.communicate(timeout=_PATIENCE)[0]
    finally:
        with suppress(ProcessLookupError):  # unless it hangs
            os.killpg(shell.pid, signal.SIGKILL)


def _outputs(text: str, number: int) -> list[tuple[str, int]]:
    parts = _END.split(text)  # output, exit code, output, exit code, …
    outputs = [(output, int(code)) for output, code in zip(parts[::2], parts[1::2], strict=False)]
    assert len(outputs) == number, text
    return outputs
