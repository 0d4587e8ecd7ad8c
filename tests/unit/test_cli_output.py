"""Tables and fields: nothing that matters is cut, and control characters in values have no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.text import Text

from headgate.cli.output import print_applied, print_done, print_fields, print_note, print_rows
from headgate.cli.tables import printable

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = [
    ("2026-11-15 21:00", "users", "/api/orders/{id}/lines", "5,000", "4,321", "0.12", "0.34", "15"),
    ("2026-11-15 21:01", "addresses", "/api/search", "123,456", "0", "0.12", "0.34", "0.5"),
]
HEADINGS = ("at (UTC)", "rule", "endpoint", "total", "denied", "p50 ms", "p95 ms", "p99 ms")
NUMBERS = HEADINGS[3:]
HOSTILE = "[red]x[/]\x1b[31m\n\r\x9b2J\u202e:smile:"
WRITTEN = r"[red]x[/]\x1b[31m\n\r\x9b2J\u202e:smile:"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make standard output a terminal without colours that is so wide."""

    def make(width: int) -> None:
        def console() -> Console:
            return Console(force_terminal=True, color_system=None, width=width, highlight=False, markup=False)

        monkeypatch.setattr("headgate.cli.output.console", console)

    return make


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_numbers_and_times_are_whole_in_any_width(
    terminal: Callable[[int], None], width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column is there with all of its cells, in the table or below each row; no line is wider than the terminal."""
    terminal(width)
    print_rows(HEADINGS, ROWS, numbers=NUMBERS)
    shown = capsys.readouterr().out
    assert all(len(line) <= width for line in shown.splitlines())
    for place, heading in enumerate(HEADINGS):
        assert heading in shown
        for row in ROWS:
            assert heading == "endpoint" or row[place] in shown, (heading, row)
    assert shown.count("p99 ms") == (1 if width > 86 else 2)


def test_the_last_columns_stand_below_first(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """And only as many as there is no room for, as many in a line as there is."""
    terminal(80)
    print_rows(HEADINGS, ROWS, numbers=NUMBERS)
    assert capsys.readouterr().out.splitlines()[-1] == "   p99 ms 0.5"
    terminal(60)
    print_rows(HEADINGS, ROWS, numbers=NUMBERS)
    assert capsys.readouterr().out.splitlines()[-1] == "   p50 ms 0.12  p95 ms 0.34  p99 ms 0.5"


def test_sentences_break_between_words(terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal; in a pipe they are one line."""
    sentence = "of each user, key or address that was recorded: the highest share of the limit that it had used"
    for width in (40, 80):
        terminal(width)
        print_note(sentence)
        shown = capsys.readouterr().out
        assert all(len(line) <= width for line in shown.splitlines())
        assert " ".join(shown.split()) == sentence


def test_texts_are_folded_before_anything_is_left_out(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The widest first, and none to less than one can read."""
    terminal(50)
    print_rows(("day", "what", "much"), [("2026-11-15", "word " * 18, "5,000")], numbers=["much"], long=["what"])
    shown = capsys.readouterr().out
    assert shown.count("word") == 18
    (row,) = (line for line in shown.splitlines() if "2026-11-15" in line)
    assert row.endswith("5,000")
    assert len(row) == 50


def test_what_may_stand_below_has_a_line_of_its_own(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids can be copied from any terminal."""
    rows = [("2026-11-15 21:00:00", "denied", "u_42", "a" * 32), ("2026-11-15 21:00:01", "denied", "u_43", "b" * 32)]
    for width, lines in ((100, 2), (60, 4)):
        terminal(width)
        print_rows(("at (UTC)", "decision", "user", "id"), rows, whole=["id"], below=["id"])
        body = capsys.readouterr().out.partition("─\n")[2].strip().splitlines()
        assert len(body) == lines
        assert body[-1].endswith("b" * 32)


def test_what_stands_below_all_rows_alike_is_written_once(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """In a wide terminal it has a column, as always; of one row it stands below."""
    rows = [("search", "5/minute", "active", "rules.yaml"), ("login", "10/hour", "active", "")]
    for width, last in ((80, " login   10/hour   active"), (24, " all: state active")):
        terminal(width)
        print_rows(("rule", "limits", "state", "owner"), rows, whole=["rule", "limits"])
        shown = capsys.readouterr().out
        assert shown.splitlines()[-1].rstrip() == last
        assert "owner" in shown
        assert "rules.yaml" in shown
    print_rows(("rule", "limits", "state", "owner"), rows[:1], whole=["rule", "limits"])
    assert capsys.readouterr().out.splitlines()[-2:] == ["   state active", "   owner rules.yaml"]


def test_what_can_be_spared_is_left_out_first(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A picture of what a number says already, for example."""
    for width in (40, 20):
        terminal(width)
        print_rows(
            ("rule", "left", "bar"), [("search", "5", "█████░░░░░")], numbers=["left"], whole=["bar"], spare=["bar"]
        )
        shown = capsys.readouterr().out
        assert ("█" in shown) is (width == 40)
        assert len(shown.partition("─\n")[2].splitlines()) == 1


def test_nothing_is_left_out_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe or file every row is one line, however long."""
    print_rows([f"column {number}" for number in range(20)], [["word " * 15] * 20])
    shown = capsys.readouterr().out
    assert len(shown.split("─\n")[1].strip().splitlines()) == 1
    assert shown.count("word") == 300


def test_a_terminal_that_is_too_narrow_for_anything_still_shows_something(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One column, folded."""
    terminal(10)
    print_rows(("at (UTC)", "user"), [("2026-11-15 21:00", "ann")])
    shown = capsys.readouterr().out
    assert "".join(shown.partition("─\n")[2].split()).startswith("2026-11-1521:00")
    assert "".join(shown.split()).endswith("userann")


def test_what_a_terminal_would_obey_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, line ends, marks that turn the direction of writing, and markup, wherever they stand."""
    print_rows(("user", "coloured", HOSTILE), [(HOSTILE, Text(HOSTILE, "red"), "")])
    print_fields({"user": HOSTILE, HOSTILE[:20]: Text(HOSTILE), "list": [HOSTILE, "second"]})
    print_done("created", HOSTILE)
    print_note(HOSTILE)
    shown = capsys.readouterr().out
    assert shown.count(WRITTEN) == 6
    assert shown.count(WRITTEN.replace(r"\r", "")) == 2  # rich itself leaves those out of styled texts
    assert not set(shown) & set("\x1b\r\x9b\u202e")


def test_cells_are_cut_after_a_glance(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a name of 60 kB there are a hundred letters in a table, and a thousand where it stands alone."""
    print_rows(("user", "mark", "own"), [("x" * 60_000, Text("y" * 60_000), "z" * 300)], long=["own"])
    shown = capsys.readouterr().out
    assert (shown.count("x"), shown.count("y"), shown.count("z"), shown.count("…")) == (99, 99, 300, 2)
    print_fields({"user": "x" * 60_000})
    assert capsys.readouterr().out.count("x") == 999
    assert len(printable("\x1b" * 60_000, 100)) == 100


@pytest.mark.parametrize("width", [30, 40, 60])
def test_long_names_are_whole(terminal: Callable[[int], None], width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """In three lines of their column, or below the row."""
    terminal(width)
    print_rows(("at (UTC)", "user"), [("2026-11-15 21:00", "x" * 90)])
    shown = capsys.readouterr().out
    assert shown.count("x") == 90
    assert "…" not in shown


@pytest.mark.parametrize(
    ("applied", "line"),
    [
        ("1/1", "applied by 1 of 1 process\n"),
        ("3/3", "applied by 3 of 3 processes\n"),
        ("2/3", "applied by 2 of 3 processes; 'headgate processes' shows which\n"),
        ("0/0", "no process runs on this database now; it holds for those that start\n"),
        ("", ""),
    ],
)
def test_one_line_says_how_far_a_change_has_got(capsys: pytest.CaptureFixture[str], applied: str, line: str) -> None:
    """It names those that have it and all; without a word from the service there is no line."""
    print_applied(applied)
    assert capsys.readouterr().out == line
