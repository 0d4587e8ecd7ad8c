"""Services that only decide or only administer, and one service for each data directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.service import Run, Start
    from tests.support.valkey import Server

TOKEN = "a-token-of-the-test"  # noqa: S105 (used only here)
RULE = {"name": "five", "per": ["user"], "limits": "5/day"}


def test_a_second_service_on_a_data_directory_is_refused(start: Start, headgate: Run, tmp_path: Path) -> None:
    """The sentence names the process and the addresses of the first; a folder that a killed service leaves is free."""
    data = str(tmp_path / "data")
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: five, per: [user], limits: 5/day}]")
    service = start("--rules", str(rules), redis_url="embedded://", data_dir=data)
    for role in ("all", "decisions"):
        ports = ("--port=0", "--admin-port=0", "--grpc-port=0")
        refused = headgate("serve", "--role", role, *ports, data_dir=data, database_url="embedded://")
        assert refused.returncode == 1
        who = f"(process {service.process.pid} at {service.url})"
        assert f"headgate: another service uses the data directory {data} {who}; stop it, or set " in refused.stderr
    service.signal(signal.SIGKILL)
    service.wait()
    again = start("--rules", str(rules), redis_url="embedded://", data_dir=data)
    assert again.check(user="u1").status_code == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_data_directory_of_another_user_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """It says which folder, and which setting to change."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    code = (
        "import os\nfrom pathlib import Path\nfrom headgate.adapters.data_dir_lock import claimed\nos.setuid(65534)\n"
        f"with claimed(Path({str(data)!r}), ['decisions'], 'x'): pass"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 (ours)
    assert f"the data directory {data} cannot be used: Permission denied; set HEADGATE_DATA_DIR" in ended.stderr


def test_roles_apart_are_what_all_is_together(start: Start, postgres: Postgres, valkey: Server, tmp_path: Path) -> None:
    """One service administers and another decides, on one database: a rule made at the one is active at the other."""
    where = {"database_url": postgres.new_database(), "redis_url": valkey.url, "admin_token": TOKEN}
    deciding = start("--role", "decisions", "--workers", "2", data_dir=str(tmp_path / "d"), **where)
    assert "admin" not in deciding.output
    admin = start("--role", "admin", data_dir=str(tmp_path / "a"), port="1", **where)
    assert admin.url == admin.admin_url
    assert "grpc" not in admin.output.partition("other ports")[0]
    admin.wait_for_error("HEADGATE_PORT has no effect: it is for services with the role decisions")
    made = admin.admin.post("/v1/rules", json=RULE)
    assert made.status_code == 201, made.text
    wait_until(lambda: deciding.http.get("/readyz").status_code == 200)
    wait_until(lambda: deciding.check(user="u1").json().get("policy") == "five")
    wait_until(lambda: len(admin.admin.get("/v1/processes").json()["items"]) == len(deciding.pids) + len(admin.pids))
    assert httpx.get(f"{admin.admin_url}/livez").json() == {"status": "alive"}
    assert "headgate_process_restarts_total" in admin.admin.get("/metrics").text
    while deciding.check(user="u1").status_code == 200:
        pass
    wait_until(lambda: bool(admin.admin.get("/v1/events").json()["items"]))
    for service in (deciding, admin):
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


def test_the_role_admin_needs_a_database(headgate: Run, tmp_path: Path) -> None:
    """Without one it would have nothing to administer."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []")
    refused = headgate("serve", "--role", "admin", "--rules", str(rules))
    assert refused.returncode == 1
    assert "the role admin needs a database; set HEADGATE_DATABASE_URL" in refused.stderr
