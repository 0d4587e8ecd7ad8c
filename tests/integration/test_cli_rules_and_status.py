"""`headgate rules list`, `rules show`, `rules schema` and `status`, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.postgres import Database
from headgate.archive import schedule
from headgate.cli.commands import run
from headgate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = str(Path(__file__).parents[2] / "examples" / "rules.yaml")


@pytest.fixture
def _applied(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A database that has the example rules."""
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)
    assert run(["rules", "apply", EXAMPLES, "--yes"]) == 0
    capsys.readouterr()


@pytest.fixture
def service() -> Iterator[tuple[str, dict[str, object]]]:
    """The address of a decision service, and what its /readyz says, which tests may change."""
    says: dict[str, object] = {"status": "ready", "snapshot": 7, "rules": "feed"}

    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(says).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}", says
        server.shutdown()
        serving.join()


@pytest.mark.usefixtures("_applied")
def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With what each limits, whom it counts, where it applies, and whether it is on."""
    assert run(["rules", "disable", "login"]) == 0
    capsys.readouterr()
    assert run(["rules", "list"]) == 0
    rows = {line.split()[0]: " ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "POST /login" in rows["login"]
    assert " disabled " in rows["login"]
    assert "GET /api/search" in rows["search"]
    assert " active " in rows["search"]
    assert run(["rules", "list", "--limit", "2"]) == 0
    assert "there are more" in capsys.readouterr().out
    assert run(["rules", "list", "--json"]) == 0
    assert {each["name"] for each in json.loads(capsys.readouterr().out)} <= rows.keys()


@pytest.mark.usefixtures("_applied")
def test_a_rule_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """With all of its fields, and who changed it last; one that is not there is named."""
    assert run(["rules", "show", "api"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("state active", "limits tier:api", "per user", "algorithm sliding_window_counter", "where everywhere"):
        assert part in shown
    assert "POST 5" in shown
    assert run(["rules", "show", "api", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "api"
    assert run(["rules", "show", "nothing"]) == 1
    assert "nothing" in capsys.readouterr().err


def test_the_schema_needs_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An editor's schema is that of the version that is installed; a service is asked only if it is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADGATE_DATABASE_URL", raising=False)
    assert run(["rules", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"]
    assert run(["rules", "schema", "--url", "http://127.0.0.1:1", "--token", "t"]) == 1
    assert "no answer from http://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.usefixtures("_applied")
def test_the_status_is_one_look(
    service: tuple[str, dict[str, object]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the service is ready, and which rules are the newest."""
    url, says = service
    monkeypatch.setenv("HEADGATE_URL", url)
    assert run(["status"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"service ready at {url}, snapshot 7 from the feed" in shown
    assert "8 rules, snapshot " in shown
    assert "processes none runs on this database" in shown
    says["status"] = "not ready"
    assert run(["status", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["service"]["status"] == "not ready"


def test_a_status_without_an_answer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says where it has asked, and that there is no control plane."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADGATE_DATABASE_URL", raising=False)
    monkeypatch.setenv("HEADGATE_URL", "http://127.0.0.1:1")
    assert run(["status"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "service no answer from http://127.0.0.1:1 (Connection refused)" in shown
    assert "control plane none" in shown


def test_a_job_that_ran_is_in_the_status(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How each ended, when, and when it comes again; before the first, which settings ask for jobs."""
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)
    monkeypatch.setenv("HEADGATE_URL", "http://127.0.0.1:1")
    assert run(["db", "migrate"]) == 0
    capsys.readouterr()
    assert run(["status"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    for name in ("HEADGATE_ARCHIVE_DAILY", "HEADGATE_BACKUP_DAILY", "HEADGATE_BASE_BACKUP_FOLDER"):
        assert name in text
    asyncio.run(_run_jobs(database_url, tmp_path))
    run(["status"])
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"archive done \S+ \S+, next \S+ \S+ UTC", text), text
    assert re.search(r"backup failed \S+ \S+, next \S+ \S+ UTC: exit code 3", text), text
    run(["status", "--json"])
    jobs = json.loads(capsys.readouterr().out)["control_plane"]["jobs"]
    assert [(each["name"], each["outcome"]) for each in jobs] == [("archive", "done"), ("backup", "failed")]


async def _run_jobs(url: str, folder: Path) -> None:
    """One look of the scheduler, with a job that does well and one that does not."""
    database = Database(url)
    settings = Settings(database_url=url, data_dir=folder)
    for name, code in (("archive", 0), ("backup", 3)):
        job = schedule.Job(name, (sys.executable, "-c", f"raise SystemExit({code})"))
        await schedule._run_if_due(database, job, settings)
    await database.close()
