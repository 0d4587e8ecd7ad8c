"""The service with a Valkey server of its own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Run, Service, Start


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{name: five, per: [user], limits: 5/day}]")
    return file


def _told_to_stop(service: Service) -> None:
    service.signal(signal.SIGTERM)


def _interrupted_in_a_terminal(service: Service) -> None:
    os.killpg(service.process.pid, signal.SIGINT)  # ctrl-c reaches every process of the group


def test_counters_survive_a_restart(start: Start, rules: Path, tmp_path: Path) -> None:
    """A service on embedded:// says where it keeps its counters, and after a restart goes on from them."""
    remaining = []
    for stop in (_told_to_stop, _interrupted_in_a_terminal, _told_to_stop):
        service = start("--rules", str(rules), redis_url="embedded://", data_dir=str(tmp_path))
        assert f"embedded (counters are kept in {tmp_path}/valkey)\n" in service.output
        remaining.append(service.check(user="u1").json()["remaining"])
        stop(service)
        assert service.wait() == 0
        assert service.errors == ""
        assert not (tmp_path / "valkey" / "valkey.sock").exists()
    assert remaining == [4, 3, 2]


def test_a_data_directory_that_cannot_be_used_stops_the_start(headgate: Run, rules: Path) -> None:
    """What is wrong with the folder is said in a sentence at the start, not at the first check."""
    refused = headgate("serve", "--rules", str(rules), "--port", "0", redis_url="embedded://", data_dir=str(rules))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"headgate: the data directory {rules} cannot be used: ")
    assert refused.stderr.count("\n") == 1


def test_commands_in_the_folder_find_the_service_that_runs_on_it(
    start: Start, headgate: Run, rules: Path, tmp_path: Path
) -> None:
    """`top` and `status` need neither address nor token there; after a kill they say what to set."""
    folder = str(tmp_path / "data")
    service = start("--rules", str(rules), redis_url="memory://", database_url="embedded://", data_dir=folder)
    shown = headgate("top", "--once", data_dir=folder)
    assert shown.returncode == 0, shown.stderr
    assert f"headgate top  {service.admin_url}" in shown.stdout
    shown = headgate("status", data_dir=folder, url=service.url)
    assert shown.returncode == 0, shown.stderr
    assert "no requests" in shown.stdout
    service.signal(signal.SIGKILL)
    service.wait()
    refused = headgate("top", "--once", data_dir=folder)
    assert refused.returncode == 1
    assert "set HEADGATE_ADMIN_URL and HEADGATE_ADMIN_TOKEN" in refused.stderr
