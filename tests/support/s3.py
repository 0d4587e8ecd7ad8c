"""An S3 service of our own: moto's server, in a child process."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.support.valkey import free_port

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "something", "AWS_DEFAULT_REGION": "us-east-1"}


class S3Server:
    """One service, with new buckets on request."""

    def __init__(self, folder: Path) -> None:
        """Start it, and wait until it answers."""
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._buckets = 0
        with (folder / "s3.log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own words)
                [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                stdout=log,
                stderr=log,
                env=dict(os.environ) | KEYS,
            )
        for _ in range(600):
            try:
                self._ask("GET", "/moto-api/")
            except OSError:
                time.sleep(0.1)
            else:
                return
        msg = "the S3 service does not answer"
        raise RuntimeError(msg)

    def new_bucket(self) -> str:
        """The address of a folder in a new bucket."""
        self._buckets += 1
        self._ask("PUT", f"/bucket{self._buckets}")
        return f"s3://bucket{self._buckets}/kept"

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _ask(self, method: str, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path)
            connection.getresponse().read()
        finally:
            connection.close()
