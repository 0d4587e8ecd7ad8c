"""Commands on a real terminal of 80 and of 120 columns: the live screen, tables and progress bars."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.support.service import EXAMPLE_RULES, HEADGATE, Service, environment
from tests.support.terminal import NEEDS_TMUX, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = NEEDS_TMUX
SIZES = [(80, 24), (120, 40)]


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    """A service with the example rules, and some traffic behind it."""
    running = Service(
        "--rules", str(EXAMPLE_RULES), database_url=database_url, redis_url="memory://", data_dir=str(tmp_path / "data")
    )
    for number in range(12):
        running.check(user="u1", ip="203.0.113.9", method="POST", path="/login", tier="free")
        running.check(user=f"u{number}", method="GET", path="/api/search", tier="premium")
    yield running
    running.close()


def env(service: Service) -> dict[str, str]:
    """The environment of an operator of this service."""
    return environment(admin_url=service.admin_url, admin_token=service.admin_token, url=service.url)


def fits(text: str, columns: int) -> None:
    """No line is wider than the terminal, and no text is cut."""
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text


@pytest.mark.parametrize(("columns", "lines"), SIZES)
@pytest.mark.parametrize("key", ["q", "C-c"])
def test_top_moves_and_ends(columns: int, lines: int, key: str, service: Service, tmp_path: Path) -> None:
    """It shows what happens within seconds, fits the window, and leaves the terminal as it was."""
    command = [HEADGATE, "top", "--interval", "0.5"]
    with Terminal(tmp_path, command, columns=columns, lines=lines, env=env(service)) as terminal:
        text = terminal.wait_for("denied most")
        fits(text, columns)
        for words in ("headgate top", "normal", "Redis", "PostgreSQL", "p99", "q quits"):
            assert words in text
        service.check(user="u9", ip="203.0.113.9", method="POST", path="/login")
        terminal.wait_for("login")
        terminal.press(key)
        assert terminal.exit_code() == (0 if key == "q" else 130)
        assert "headgate top" not in terminal.text()  # the screen before it is there again


def test_top_follows_its_window_and_its_service(service: Service, tmp_path: Path) -> None:
    """A larger window shows more beside each other; a service that stops is told of, and the figures stay."""
    with Terminal(tmp_path, [HEADGATE, "top", "--interval", "0.5"], columns=80, env=env(service)) as terminal:
        terminal.wait_for("busiest rules")
        terminal.resize(130, 40)
        terminal.wait_for("in 15 min")
        service.close()
        text = terminal.wait_for("trying again")
        assert "no answer from" in text
        assert "busiest rules" in text
        terminal.press("q")
        assert terminal.exit_code() == 0


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_tables_lose_nothing(columns: int, lines: int, service: Service, tmp_path: Path) -> None:
    """Every name, limit and number of a list is there, however narrow the terminal is."""
    del lines
    for words, wanted in (
        (["rules", "list"], ("banned-network", "198.51.100.0/24", "search-tighter", "5/minute", "30/minute burst 10")),
        (["tiers", "list"], ("enterprise", "6000/minute", "unlimited")),
        (["processes"], ("service",)),
        (["status"], ("ready", "8 rules", "since (UTC)")),
        (["rules", "validate", str(EXAMPLE_RULES)], ("sliding_window_counter", "token_bucket", "everything")),
    ):
        with Terminal(tmp_path, [HEADGATE, *words], columns=columns, lines=200, env=env(service)) as terminal:
            assert terminal.exit_code() == 0
            text = terminal.text()
            fits(text, columns)
            joined = re.sub(r"\s+", " ", text)
            for each in wanted:
                assert each in joined, text


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_tables_of_callers_lose_nothing(columns: int, lines: int, service: Service, tmp_path: Path) -> None:
    """What is known of a caller is there too, with words beside each quota, and a bar where there is room for it."""
    del lines
    bar = ("░░░░░",) if columns > 80 else ()
    admin = service.admin
    closed = {"name": "closed-for-now", "action": "block", "match": {"endpoints": ["/closed/*"]}}
    assert admin.post("/v1/rules", json=closed).status_code == 201
    assert admin.post("/v1/users", json={"id": "u1", "tier": "premium"}).status_code == 201
    assert admin.post("/v1/keys", json={"user": "u1", "name": "reporting-nightly"}).status_code == 201
    asked = ["--user", "u1", "--ip", "203.0.113.9", "--method", "POST", "--path", "/login"]
    for words, wanted in (
        (["quota", "u1"], ("everything", "closed-for-now", "blocked here", *bar)),
        (["explain", *asked], ("login", "203.0.113.9")),
        (["events"], ("POST /login", "denied")),
        (["violators"], ("u1",)),
        (["keys", "list"], ("reporting-nightly", "u1")),
        (["users", "list"], ("u1", "premium")),
    ):
        with Terminal(tmp_path, [HEADGATE, *words], columns=columns, lines=200, env=env(service)) as terminal:
            terminal.exit_code()
            text = terminal.text()
            fits(re.sub(r"(hg_\w+)…", r"\1 ", text), columns)  # of a key only the beginning is known
            joined = re.sub(r"\s+", " ", text)
            assert [each for each in wanted if each not in joined] == [], text


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_long_work_has_a_bar(columns: int, lines: int, database_url: str, tmp_path: Path) -> None:
    """It moves while users are loaded, fits the terminal, and leaves the result alone on the screen."""
    file = tmp_path / "users.csv"
    file.write_text("id\n" + "".join(f"load-{number}\n" for number in range(60_000)))
    command = [HEADGATE, "users", "load", str(file)]
    settings = environment(database_url=database_url, redis_url="memory://", data_dir=str(tmp_path / "data"))
    with Terminal(tmp_path, command, columns=columns, lines=lines, env=settings) as terminal:
        text = terminal.wait_for("/60000")
        fits(text, columns)
        assert "━" in text
        assert terminal.exit_code() == 0
        assert "━" not in terminal.text()
        assert "60000" in terminal.text().replace(",", "")


def test_colours_are_for_terminals_that_want_them(service: Service, tmp_path: Path) -> None:
    """A terminal gets colours, and NO_COLOR takes them away."""
    colour = re.compile("\x1b\\[3[0-7]m")  # 39 is the usual one
    command = [HEADGATE, "doctor", "--rules", str(EXAMPLE_RULES)]
    for extra, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with Terminal(tmp_path, command, columns=100, env=env(service) | extra) as terminal:
            terminal.wait_for("found.")
            assert bool(colour.search(terminal.text(colours=True))) == is_coloured
