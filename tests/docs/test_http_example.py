"""The HTTP example in the README is what the service really answers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Fences = Callable[[Path, str], list[tuple[int, str]]]

_CHANGING: Final = {"id", "reset_after", "retry_after"}
"""What differs from one call to the next."""


@pytest.fixture
def service(root: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a service that was started like `make serve` does, on free ports, with nothing counted yet."""
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"\$\(BIN\)/headgate (serve .*)$", makefile, re.MULTILINE)
    assert found is not None
    command = [sys.executable, "-m", "headgate.cli.main", *shlex.split(found[1]), "--port", "0", "--admin-port", "0"]
    environment = os.environ | {"HEADGATE_DATA_DIR": str(tmp_path), "HEADGATE_GRPC_PORT": "0"}
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, env=environment) as running:  # noqa: S603 (our own)
        assert running.stdout is not None
        address = re.search(r"http://\S+", running.stdout.readline())
        assert address is not None
        # The first moments are decided by the file itself, without a number, until its rules are in the database.
        wait_until(lambda: httpx.get(f"{address[0]}/readyz").is_success and _snapshot(address[0]) > 0)
        yield address[0]
        running.send_signal(2)
        running.communicate(timeout=20)


def _snapshot(url: str) -> int:
    """The number of the active rules; nothing is counted."""
    number: int = httpx.post(f"{url}/v1/peek", json={"user": "u1"}).json()["snapshot"]
    return number


def _asked(readme: Path, fences: Fences) -> str:
    (line,) = [line for _, text in fences(readme, "console") for line in text.splitlines() if "curl" in line]
    words = shlex.split(line)
    assert words[-1].startswith("{")
    assert words[-3].endswith("/v1/check")
    return words[-1]


def _lasting(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in _CHANGING | {"decisions"}}


def test_the_readme_shows_a_real_answer(root: Path, fences: Fences, service: str) -> None:
    """The headers in the README and the body in the reference are those that the service answers with."""
    readme = root / "README.md"
    answer = httpx.post(f"{service}/v1/check", content=_asked(readme, fences))
    ((_, shown_headers),) = fences(readme, "http")
    status, *lines = shown_headers.strip().splitlines()
    assert status == f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}"
    names = {line.partition(":")[0] for line in lines}
    assert names == set(answer.headers) - {"server", "date", "content-length"}
    text = next(text for _, text in fences(root / "docs/reference/http.md", "json") if '"decisions"' in text)
    shown, body = json.loads(text), answer.json()
    assert list(shown) == list(body)
    assert _lasting(shown) == _lasting(body)
    assert [list(decision) for decision in shown["decisions"]] == [list(decision) for decision in body["decisions"]]
    assert list(map(_lasting, shown["decisions"])) == list(map(_lasting, body["decisions"]))


def test_the_readme_tells_when_the_limit_is_reached(root: Path, fences: Fences, service: str) -> None:
    """The eleventh request gets 429, Retry-After and a problem document, as the README says."""
    body = _asked(root / "README.md", fences)
    # Two tries: if the minute of the first ends meanwhile, that of the second does not.
    answers = [httpx.post(f"{service}/v1/check", content=body) for _ in range(22)]
    refused = next(answer for answer in answers if answer.status_code != 200)
    assert answers.index(refused) >= 10
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["violated-policies"] == ["search"]
