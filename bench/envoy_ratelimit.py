"""envoyproxy/ratelimit, the peer of our rate-limit service: built with Go from its module, where Go is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = "v1.4.1-0.20260122083618-3fb702589d36"
"""Its releases stopped with v1.4.0 in 2019; what people run are images of its main branch."""
_PROGRAM: Final = Path(__file__).parents[1] / ".servers" / "ratelimit" / VERSION / "service_cmd"
_BUILD_SECONDS: Final = 900
_START_SECONDS: Final = 20
_DOMAINS: Final = {"web": 1_000_000, "few": 5}
"""How many calls an hour each caller has there."""
_CONFIGURATION: Final = """\
domain: {domain}
descriptors:
  - key: remote_address
    descriptors:
      - key: path
        rate_limit: {{unit: hour, requests_per_unit: {amount}}}
"""


class CannotBuild(Exception):
    """There is no Go, or it could not build the program."""


def program() -> Path:
    """The program, built now if it was not before; raises `CannotBuild`."""
    if _PROGRAM.exists():
        return _PROGRAM
    go = shutil.which("go")
    if go is None:
        msg = "Go is not installed"
        raise CannotBuild(msg)
    command = [go, "install", f"github.com/envoyproxy/ratelimit/src/service_cmd@{VERSION}"]
    environment = {**os.environ, "GOBIN": str(_PROGRAM.parent)}
    try:
        subprocess.run(  # noqa: S603 (our own words)
            command, env=environment, check=True, capture_output=True, text=True, timeout=_BUILD_SECONDS
        )
    except subprocess.CalledProcessError as error:
        msg = f"Go could not build envoyproxy/ratelimit: {error.stderr.strip().splitlines()[-1:]}"
        raise CannotBuild(msg) from error
    except subprocess.TimeoutExpired as error:
        msg = f"Go has not built envoyproxy/ratelimit in {_BUILD_SECONDS} seconds"
        raise CannotBuild(msg) from error
    return _PROGRAM


@contextmanager
def serving(path: Path, redis_port: int, pipeline_window: str) -> Iterator[tuple[int, int]]:
    """The service with the same rules as ours on the same Redis: its port, and its process.

    Without statistics, logs and a cache of its own. With a `pipeline_window` commands of that time travel together.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        configured = Path(folder, "ratelimit", "config")
        configured.mkdir(parents=True)
        for domain, amount in _DOMAINS.items():
            text = _CONFIGURATION.format(domain=domain, amount=amount)
            (configured / f"{domain}.yaml").write_text(text, encoding="utf-8")
        port = free_port()
        settings = {
            "HOST": "127.0.0.1",
            "PORT": free_port(),
            "DEBUG_HOST": "127.0.0.1",
            "DEBUG_PORT": free_port(),
            "GRPC_HOST": "127.0.0.1",
            "GRPC_PORT": port,
            "LOG_LEVEL": "error",
            "USE_STATSD": "false",
            "DISABLE_STATS": "true",
            "RUNTIME_ROOT": folder,
            "RUNTIME_SUBDIRECTORY": "ratelimit",
            "RUNTIME_WATCH_ROOT": "false",
            "REDIS_SOCKET_TYPE": "tcp",
            "REDIS_URL": f"127.0.0.1:{redis_port}",
            "REDIS_PIPELINE_WINDOW": pipeline_window,
        }
        environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen([path], env=environment, stdout=log, stderr=log)  # noqa: S603 (built by us)
        try:
            _until_it_listens(port, process, Path(folder, "log"))
            yield port, process.pid
        finally:
            process.kill()
            process.wait()


def _until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionError:
            time.sleep(0.02)  # nothing tells that it listens
        else:
            return
    msg = f"envoyproxy/ratelimit did not start: {log.read_text(encoding='utf-8')[-500:]}"
    raise RuntimeError(msg)
