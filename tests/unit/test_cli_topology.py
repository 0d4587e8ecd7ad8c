"""`headgate simulate topology`: the table, JSON, and what is refused."""

from __future__ import annotations

import json

import pytest

from headgate.cli.commands import run

SMALL = ["--rate", "2000", "--users", "100", "--rules", "5", "--processes", "3", "--window", "2", "--jobs", "1"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Each mode has a row; a mode whose hottest key is too much for a server is named."""
    command = ["simulate", "topology", *SMALL, "--modes", "exact,leased", "--redis-micros", "5000"]
    assert run(command) == 0
    said = capsys.readouterr().out
    assert "2,000 requests/s, 100 users, 5 rules; processes: r1 2, r2 1, r3 1" in said
    assert "Redis ops/s" in said
    assert "one key needs more than a core, so it cannot work: exact" in said


def test_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """The same as data, with the deployment beside it."""
    command = ["simulate", "topology", *SMALL, "--modes", "deny-cache", "--regions", "1", "--json"]
    assert run(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["deployment"]["regions"] == {"r1": 1.0}
    assert [row["mode"] for row in found["modes"]] == ["deny cache"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--modes", "fast"], "--modes is 'fast'"),
        (["--regions", "a,b"], "--regions is 'a,b'"),
        (["--rate", "0"], "--rate"),
    ],
)
def test_what_is_refused(wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option is told in a sentence."""
    assert run(["simulate", "topology", *wrong]) == 1
    assert said in capsys.readouterr().err


def test_simulate_alone_wants_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """Without rules and without `topology` there is nothing to simulate."""
    assert run(["simulate"]) == 1
    assert "--rules FILE" in capsys.readouterr().err
