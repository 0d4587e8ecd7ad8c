"""`headgate demo`: a company with traffic and a past, on data of its own, whatever the environment says."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING

import httpx
from tests.support.service import HEADGATE, PATIENCE, environment
from tests.support.valkey import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


class Demo:
    """A running demo."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder / "demo"
        self.port, self.admin_port, grpc_port = free_port(), free_port(), free_port()
        ports = ("--port", str(self.port), "--admin-port", str(self.admin_port), "--grpc-port", str(grpc_port))
        # None of these may be used: a demo never writes to another database.
        production = environment(
            database_url="postgresql://nowhere.invalid/production", redis_url="redis://nowhere.invalid"
        )
        self.process = subprocess.Popen(  # noqa: S603 (our own command)
            [HEADGATE, "demo", *ports, "--data-dir", str(self.folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=production,
            text=True,
        )

    def get(self, path: str) -> dict[str, object]:
        """What the admin API says."""
        token = (self.folder / "admin-token").read_text(encoding="ascii").strip()
        answer = httpx.get(
            f"http://127.0.0.1:{self.admin_port}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE
        )
        answer.raise_for_status()
        found: dict[str, object] = json.loads(answer.text)
        return found

    def items(self, path: str) -> list[dict[str, object]]:
        """The items of a list; none while nothing answers."""
        try:
            found = self.get(path)["items"]
        except (httpx.HTTPError, OSError):
            return []
        assert isinstance(found, list)
        return found

    def end(self) -> str:
        """Press ctrl-c, and read what was said."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=90)
        return out


def test_every_page_has_something_to_show(tmp_path: Path) -> None:
    """Rules with a history, users, keys, blocks, tokens, live rates, denials and days that have passed; twice."""
    demo = Demo(tmp_path, "--days", "1", "--rate", "60")
    try:
        wait_until(lambda: demo.items("/v1/events?decision=denied"), "denials are recorded", 120, interval=0.5)
        assert len(demo.items("/v1/rules")) == 11
        assert len(demo.items("/v1/snapshots")) > 1
        assert len(demo.items("/v1/users")) > 40
        assert demo.items("/v1/keys")
        assert demo.items("/v1/blocks")
        assert len(demo.items("/v1/tokens")) >= 2
        assert demo.items("/v1/changes")
        wait_until(lambda: demo.items("/v1/violators"), "the scraper is denied", 60, interval=0.5)
        wait_until(lambda: len(demo.items("/v1/metrics?granularity=hour")) > 20, "the past is there", 120, interval=0.5)
        overview = demo.get("/v1/overview")
        assert overview["state"] == "normal"
        assert any(value for value in overview["rates"].values())  # type: ignore[attr-defined] # an object
    finally:
        said = demo.end()
    assert demo.process.returncode == 0, said
    for words in ("Parcelwise, a made-up company, gets 60 requests a second", "scraper", "headgate top", "were sent"):
        assert words in said
    again = Demo(tmp_path)
    wait_until(lambda: again.items("/v1/events?decision=denied"), "it runs again", 120, interval=0.5)
    assert again.process.stdout is not None
    words = "that of an earlier run; delete the folder to begin anew"  # said a moment after the service answers
    assert any(words in line for line in again.process.stdout)
    again.process.terminate()  # as a supervisor does; nothing stays behind
    out, _ = again.process.communicate(timeout=120)
    assert again.process.returncode == 0, out
    assert again.items("/v1/events") == []
