"""The log as JSON: one object in each line, from every logger."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service, Start
    from tests.support.valkey import Server

RULES = "rules: [{name: once, per: [user], limits: 1/day, algorithm: fixed_window}]"


def lines(service: Service) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in service.errors.splitlines()]
    for line in read:
        assert {"time", "level", "message", "worker", "logger"} <= set(line)
        assert line["time"].endswith("Z")
        assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)
    return read


def test_every_line_is_an_object(start: Start, tmp_path: Path, valkey: Server) -> None:
    """Denials have the id of their decision, each line says which process wrote it, and no secret is in any."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    service = start(
        *("--rules", str(rules), "--workers", "2"),
        redis_url=valkey.url,
        log_format="json",
        log_level="debug",
    )
    service.check(user="logged", api_key="hg_secret")
    denied = service.check(user="logged", api_key="hg_secret")
    assert denied.status_code == 429
    service.wait_for_error(denied.json()["id"])
    first, *_ = service.workers
    os.kill(first, signal.SIGKILL)
    service.wait_for_error("is restarted")
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    read = lines(service)
    (line,) = [line for line in read if "decision" in line]
    assert line["decision"] == denied.json()["id"]
    assert (line["level"], line["rule"], line["source"], line["logger"]) == ("debug", "once", "store", "headgate")
    assert line["worker"] in {"1", "2"}
    assert [line["worker"] for line in read if "is restarted" in line["message"]] == ["supervisor"]
    assert "hg_secret" not in service.errors
    assert "logged" not in service.errors
