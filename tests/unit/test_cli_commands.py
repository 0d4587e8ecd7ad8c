from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
import typer.testing

from headgate.cli import commands, main
from headgate.cli.examples import EXAMPLES
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES = str(Path(__file__).parents[2] / "examples" / "rules.yaml")


@pytest.fixture
def other_server() -> Iterator[str]:
    """The address of a server that is no headgate."""

    class Hello(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[hello]")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hello) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where typer is not installed the entry point says so in one sentence and ends with 1."""
    monkeypatch.delitem(sys.modules, "headgate.cli.commands")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    sentence = "headgate: the command line needs typer, which is not installed: pip install 'headgate[server]'\n"
    assert capsys.readouterr().err == sentence


def test_a_missing_part_of_headgate_is_not_taken_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import error inside headgate is not blamed on what is installed."""
    monkeypatch.delitem(sys.modules, "headgate.cli.commands")
    monkeypatch.delitem(sys.modules, "headgate.cli.failures", raising=False)
    monkeypatch.setitem(sys.modules, "headgate.cli.output", None)
    with pytest.raises(ModuleNotFoundError, match=r"headgate\.cli\.output"):
        main.main()


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (HeadgateError("the store is unavailable"), 1, "headgate: the store is unavailable\n"),
        (
            ZeroDivisionError("division by zero"),
            1,
            "headgate: this is a bug in headgate: ZeroDivisionError: division by zero\n",
        ),
        (
            ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg"),
            1,
            "headgate: this command needs asyncpg, which is not installed: pip install 'headgate[postgres]'\n",
        ),
        (
            ModuleNotFoundError("No module named 'opentelemetry.sdk'", name="opentelemetry.sdk"),
            1,
            "headgate: this command needs opentelemetry, which is not installed: pip install 'headgate[otel]'\n",
        ),
        (
            ModuleNotFoundError("No module named 'headgate.nothing'", name="headgate.nothing"),
            1,
            "headgate: this is a bug in headgate: ModuleNotFoundError: No module named 'headgate.nothing'\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_end_has_a_code_and_at_most_a_sentence(
    failure: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a verb raises becomes an exit code and a sentence, never a traceback."""

    def fail(_arguments: list[str], *, prog_name: str, standalone_mode: bool) -> None:
        assert prog_name == "headgate"
        assert not standalone_mode
        raise failure

    monkeypatch.setattr(commands, "application", lambda _words: fail)
    assert commands.run([]) == code
    assert capsys.readouterr().err == said


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point ends with the code of its verb."""
    monkeypatch.setattr(sys, "argv", ["headgate", "--version"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 0
    assert capsys.readouterr().out == "headgate 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check", "--url", "http://127.0.0.1:1"], "no answer from http://127.0.0.1:1 (Connection refused)"),
        (["check", "--url", "gopher://x"], "--url is 'gopher://x'; write an address such as http://127.0.0.1:8080"),
        (["check", "--cost", "1.5"], "--cost is '1.5'; write a whole number from 0 to 1000000000000"),
        (["check", "--attribute", "a=b", "--attribute", "a=c"], "--attribute 'a' appears twice"),
        (["quota", "", "--url", "http://127.0.0.1:1", "--token", "x" * 16], "a name or an id is empty; is a variable"),
        (["check", "--cost", "9" * 400], "--cost is "),
        (["serve", "--admin-port", "x"], "--admin-port is 'x'; write a whole number"),
        (["gateway", "--upstream", "http://h", "--service-port", "x"], "--service-port is 'x'; write a whole number"),
        (["check", "--attribute", "region"], "--attribute is 'region'; write NAME=VALUE"),
        (["check", "--rules", "missing.yaml"], "missing.yaml: cannot be read"),
        (["check", "--rules", RULES, "--ip", "nonsense"], "ip"),
        (["chek"], "No such command 'chek'"),
        (["rules", "validate"], "Missing argument"),
    ],
)
def test_a_mistake_gets_a_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with a command is said in a sentence, with exit code 1, never a denial's 2."""
    assert commands.run(arguments) == 1
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.startswith("headgate: ")
    assert said.out == ""


def test_an_answer_that_is_no_verdict_is_told_apart(other_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An address where something else answers is named as such."""
    assert commands.run(["check", "--url", other_server]) == 1
    assert capsys.readouterr().err == f"headgate: {other_server} answered 200: that is not a verdict of headgate\n"


def _verbs(command: Any, words: list[str]) -> list[list[str]]:  # noqa: ANN401 (typer brings a click of its own)
    below = getattr(command, "commands", {})
    return [words, *(verb for name, each in below.items() for verb in _verbs(each, [*words, name]))]


@pytest.mark.parametrize("verb", _verbs(typer.main.get_command(commands.application()), []), ids=" ".join)
def test_every_verb_has_help(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """--help and -h answer for the command and for every verb."""
    for option in ("--help", "-h"):
        assert commands.run([*verb, option]) == 0
        assert "Usage: " in capsys.readouterr().out


def test_no_verb_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The bare command shows its help, and has failed."""
    assert commands.run([]) == 1
    said = capsys.readouterr()
    assert "Usage: " in said.out + said.err
    assert "headgate: " not in said.err


def test_many_and_no_rules_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of very many rules the first hundred are shown, of none nothing but that."""
    many, none = tmp_path / "many.yaml", tmp_path / "none.yaml"
    rules = [{"name": f"r{number}", "limits": "1/day", "enabled": number != 1} for number in range(103)]
    many.write_text(json.dumps({"rules": rules}))
    none.write_text("rules: []")
    assert commands.run(["rules", "validate", str(many), str(none)]) == 0
    said = capsys.readouterr().out
    assert "and 3 more" in said
    assert "r99" in said
    assert "r100" not in said
    assert "reject (off)" in said
    assert said.endswith(f"fine  {none}: 0 rules\n")


def test_help_fills_the_terminal() -> None:
    """Paragraphs of docstrings are not broken where the source breaks them; lists keep their lines."""

    def verb() -> None:
        """First.

        A sentence over
        two lines.

        - one
        - two
        """

    assert commands.flowing(verb) == "First.\n\nA sentence over two lines.\n\n- one\n- two"
    shown = (
        typer.testing.CliRunner()
        .invoke(commands.application(["doctor"]), ["doctor", "--help"], env={"COLUMNS": "80"})
        .stdout
    )
    assert not [line for line in shown.splitlines() if line.strip().endswith("it starts no server,")]


def test_examples_ask_the_same_of_each_verb() -> None:
    """A rule for GET concerns a request only if it says its method, so a newcomer compares the same request."""
    asked = {
        command.partition(" --user")[2]
        for examples in EXAMPLES.values()
        for _, command in examples
        if command.startswith(("headgate check", "headgate peek", "headgate explain"))
    }
    assert len(asked) == 1
    assert "--method GET" in asked.pop()
