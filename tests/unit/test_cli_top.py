"""The screen of `headgate top`: what it shows, in the size that it is given."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from headgate.cli.commands import run
from headgate.cli.top_screen import Screen, screen

URL = "http://127.0.0.1:8081"


def figures(**changed: object) -> dict[str, Any]:
    """What the service says, with long names and large numbers."""
    rates = {"allowed": 12_345.6, "denied": 99.4, "throttled": 0.0, "blocked": 0.3, "shadow": 1.0, "degraded": 0.0}
    rule = {"rate": 1234.5, "denied": 10.0, "blocked": 0.0, "shadow": 0.5}
    return {
        "at": "2026-11-18T05:04:13.1Z",
        "state": "normal",
        "reasons": [],
        "rates": rates,
        "latency": {"decisions": 9, "p50": 0.0004, "p99": 0.0123},
        "history": [rates | {"allowed": float(second)} for second in range(120)],
        "rules": [{"rule": f"rule-{number}", **rule} for number in range(10)],
        "violators": [
            {"user": f"user-{number}", "api_key": None, "ip": None, "violations": 1_000, "last": "2026-11-18T05:03:04Z"}
            for number in range(10)
        ],
        "health": {
            "redis": {"state": "up"},
            "postgres": {"state": "up"},
            "kafka": {"state": "not_used"},
            "spool": {"state": "up", "spooled": 0, "dropped": 0},
        },
        "snapshot": {"number": 17},
        "processes": [{"behind": False}],
        "hot": None,
        **changed,
    }


def drawn(said: dict[str, Any] | None, columns: int, lines: int, trouble: str | None = None) -> list[str]:
    """The lines on a terminal of that size."""
    out = Console(file=io.StringIO(), width=columns, height=lines, force_terminal=False)
    out.print(screen(said, Screen(URL, columns, lines, trouble)))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (100, 30), (120, 40), (200, 60)])
@pytest.mark.parametrize("hot", [None, [{"key": f"rl:{{u{n}}}", "rate": 12.5} for n in range(9)], []])
def test_it_fits_its_terminal(columns: int, lines: int, hot: list[dict[str, Any]] | None) -> None:
    """Nothing is wider or longer than the window, and no figure and no name is cut."""
    reasons = [{"part": "redis", "state": "degraded", "message": "the circuit is open"}]
    spool = {"state": "degraded", "spooled": 1_234_567, "dropped": 12_345}
    behind = figures(hot=hot, processes=[{"behind": True}] * 12)
    behind["health"] |= {"kafka": {"state": "degraded"}, "spool": spool}
    for said in (figures(hot=hot), behind, figures(hot=hot, state="failing_open", reasons=reasons)):
        shown = drawn(said, columns, lines)
        assert len(shown) <= lines
        assert max(map(len, shown)) <= columns
        text = "\n".join(shown)
        for words in (
            "headgate top",
            URL,
            "12,346",
            "99.4",
            "0.4 ms",
            "12.3 ms",
            "rule-0",
            "user-0",
            "snapshot 17",
            "1,234",
        ):
            assert words in text
        assert "…" not in text
        assert f"{len(said['processes'])} process" in text
        assert said["state"].replace("_", " ") in text


def test_a_larger_terminal_shows_more() -> None:
    """More rows below each other, and tables beside each other where it is wide."""
    small, tall, wide = drawn(figures(), 80, 24), drawn(figures(), 80, 40), drawn(figures(), 120, 40)
    assert sum("rule-" in line for line in small) == 7
    assert sum("rule-" in line for line in tall) == 10
    assert any("rule-0" in line and "user-0" in line for line in wide)


def test_what_is_wrong_is_said() -> None:
    """A state that is not normal with its reasons, what waits, and processes that are behind."""
    said = figures(
        state="degraded",
        reasons=[{"part": "redis", "state": "degraded", "message": "the circuit of 10.0.0.5 is open"}],
        health=figures()["health"]
        | {"redis": {"state": "down"}, "spool": {"state": "degraded", "spooled": 1200, "dropped": 3}},
        processes=[{"behind": True}, {"behind": False}],
    )
    text = "\n".join(drawn(said, 120, 30))
    for words in (
        "degraded",
        "redis: the circuit of 10.0.0.5 is open",
        "Redis down",
        "1,200 waiting, 3 dropped",
        "1 behind",
    ):
        assert words in text


def test_without_an_answer_the_last_figures_stay() -> None:
    """With a sentence; before the first answer there is only the sentence."""
    text = "\n".join(drawn(figures(), 80, 24, "no answer from http://127.0.0.1:8081"))
    assert "no answer from http://127.0.0.1:8081; trying again" in text
    assert "rule-0" in text
    assert len(drawn(figures(), 80, 24, "no answer")) <= 24
    assert "trying again" in "\n".join(drawn(None, 80, 24, "no answer"))


def test_nothing_yet_is_said_in_words() -> None:
    """A service that has decided nothing."""
    quiet = figures(history=[], rules=[], violators=None, snapshot=None, hot=[], latency={"p50": None, "p99": None})
    text = "\n".join(drawn(quiet, 80, 24))
    for words in ("no requests in the last minute", "the database did not say yet", "none is hot", "–"):
        assert words in text
    assert "no caller was denied" in "\n".join(drawn(figures(violators=[]), 80, 24))


def test_names_cannot_draw() -> None:
    """What a terminal would obey is written out."""
    evil = figures(rules=[{"rule": "\x1b[2J[bold]x", "rate": 1.0, "denied": 0.0, "blocked": 0.0, "shadow": 0.0}])
    text = "\n".join(drawn(evil, 120, 30))
    assert "\x1b" not in text
    assert r"\x1b[2J[bold]x" in text


def test_it_needs_a_service(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are in the memory of a service, not in the database."""
    monkeypatch.delenv("HEADGATE_ADMIN_URL", raising=False)
    assert run(["top"]) == 1
    assert "set HEADGATE_ADMIN_URL and HEADGATE_ADMIN_TOKEN" in capsys.readouterr().err
    assert run(["top", "--once", "--url", "http://127.0.0.1:1", "--token", "t"]) == 1
    assert "no answer from http://127.0.0.1:1" in capsys.readouterr().err
