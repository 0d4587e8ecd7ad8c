"""The command line as a process: what it prints and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.service import Run, Service

RULES = str(Path(__file__).parents[2] / "examples" / "rules.yaml")
SEARCH = ("--method", "GET", "--path", "/api/search")


def test_check_asks_a_running_service(headgate: Run, service: Service) -> None:
    """`headgate check` ends with 0 while the service admits and with 2 once it refuses, and says so in a table."""
    asked = ("check", "--url", service.url, "--user", "asked", "--tier", "free", *SEARCH)
    passed, refused = headgate(*asked, "--cost", "4"), headgate(*asked, "--cost", "7")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert (refused.returncode, refused.stderr) == (2, "")
    assert passed.stdout.startswith("ALLOWED  6 of 10 left under search\n")
    assert refused.stdout.startswith("DENIED  by search; try again in ")
    assert "everything" in passed.stdout
    assert "search-tighter" in passed.stdout


def test_check_and_peek_print_json_for_programs(headgate: Run, service: Service) -> None:
    """With --json the verdict is printed as the service answered it; a peek counts nothing."""
    asked = ("--url", service.url, "--user", "json", "--tier", "premium", "--cost", "7", "--json", *SEARCH)
    peeked, checked = headgate("peek", *asked), headgate("check", *asked)
    assert json.loads(peeked.stdout)["remaining"] == json.loads(checked.stdout)["remaining"] == 293
    assert json.loads(checked.stdout)["allowed"] is True


def test_the_service_to_ask_can_be_set(headgate: Run, service: Service) -> None:
    """HEADGATE_URL is asked where --url is not given."""
    assert headgate("check", "--user", "set", url=service.url).returncode == 0


def test_check_decides_here_by_a_file(headgate: Run) -> None:
    """With --rules nothing has to run, and all of a request can be said."""
    who = ("--tenant", "t", "--api-key", "k", "--ip", "203.0.113.9", "--attribute", "region=eu")
    passed = headgate("check", "--rules", RULES, "--user", "u", "--tier", "free", *who, *SEARCH)
    assert passed.returncode == 0
    assert passed.stdout.startswith("ALLOWED  9 of 10 left under search")
    refused = headgate("check", "--rules", RULES, "--cost", "11", "--json", *SEARCH)
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["violated-policies"] == ["search"]
    blocked = headgate("peek", "--rules", RULES, "--ip", "198.51.100.1")
    assert blocked.returncode == 2
    assert blocked.stdout.startswith("DENIED  by banned-network")
    assert headgate("check", "--rules", RULES, "--path", "/health").stdout == "ALLOWED  exempt by health\n"


def test_a_mistake_gets_a_sentence(headgate: Run) -> None:
    """Whatever is wrong with a command is said in one sentence, with exit code 1, never a denial's 2."""
    end = headgate("check", "--uesr", "x")
    assert end.returncode == 1
    assert end.stderr.startswith("headgate: No such option: --uesr")
    assert end.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_error(headgate: Run) -> None:
    """Output into a pipe whose reader has closed it ends without a message."""
    end = headgate("rules", "validate", RULES, reader=False)
    assert end.stderr == ""


def test_a_refused_question_gets_the_sentence_of_the_service(headgate: Run, service: Service) -> None:
    """What the service finds wrong with a request is passed on."""
    end = headgate("check", "--url", service.url, "--ip", "nonsense")
    assert end.returncode == 1
    assert f"{service.url} answered 400: ip" in end.stderr


def test_a_service_that_is_no_headgate_is_told_apart(headgate: Run, service: Service) -> None:
    """An address where something else answers is named as such."""
    end = headgate("check", "--url", f"{service.url}/elsewhere")
    assert end.returncode == 1
    assert f"{service.url}/elsewhere answered 404: unknown path '/elsewhere/v1/check'" in end.stderr


def test_rules_validate_shows_what_is_in_a_good_file(headgate: Run) -> None:
    """A good file ends with 0 and a table of its rules."""
    end = headgate("rules", "validate", RULES)
    assert end.returncode == 0
    assert end.stdout.startswith(f"fine  {RULES}: 8 rules, tiers free, premium, enterprise\n")
    for name in ("health", "banned-network", "search", "login", "uploads", "30/minute burst 10", "sliding_window_log"):
        assert name in end.stdout


def test_rules_validate_lists_everything_that_is_wrong(headgate: Run, tmp_path: Path) -> None:
    """Bad files end with 1 and every problem with file, line and field, for people and for programs."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("rules:\n  - name: a\n    limits: ten\n  - name: b\n    limits: 5/calendar month tz Nowhere/Land\n")
    end = headgate("rules", "validate", RULES, str(bad), "missing.yaml")
    assert end.returncode == 1
    assert f"{bad}:3: rules[0].limits: 'ten' is not a limit" in end.stderr
    assert "missing.yaml: cannot be read" in end.stderr
    assert end.stdout.startswith("fine")
    good, reported, missing = json.loads(
        headgate("rules", "validate", "--json", RULES, str(bad), "missing.yaml").stdout
    )
    assert (good["valid"], good["rules"], good["problems"]) == (True, 8, [])
    assert (reported["valid"], reported["file"]) == (False, str(bad))
    first = reported["problems"][0]
    assert (first["line"], first["field"]) == (3, "rules[0].limits")
    assert missing["problems"][0]["line"] is None


def test_the_version_is_shown(headgate: Run) -> None:
    """--version names the product and its version."""
    assert headgate("--version").stdout == "headgate 0.1.0\n"


@pytest.mark.parametrize("example", ["library.py", "sync_library.py"])
def test_the_examples_run(example: str) -> None:
    """The example programs run to their end and say something."""
    script = str(Path(RULES).with_name(example))
    end = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603 (our own)
    assert end.stdout
    assert end.stderr == ""
