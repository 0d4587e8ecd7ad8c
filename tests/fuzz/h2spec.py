"""Runs h2spec, the conformance suite for HTTP/2, against our gRPC server, and reads what failed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

_PATH: Final = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
_FOLDER: Final = Path(__file__).parents[2] / ".servers" / "bin"


def find_h2spec() -> str | None:
    """The program, where `make fuzz` could install it, or it was there."""
    return shutil.which("h2spec") or shutil.which("h2spec", path=_FOLDER)


def failures(program: str) -> tuple[int, set[str]]:
    """How many cases there are, and those that did not get the frame that they expect."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.grpc_target", "1000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server,
    ):
        assert server.stdout is not None
        port, report = server.stdout.readline().strip(), Path(folder) / "report.xml"
        try:
            # It fails if a case does.
            command = [program, "-p", port, "-P", _PATH, "-o", "3", "-j", str(report)]
            subprocess.run(command, check=False, capture_output=True)  # noqa: S603 (h2spec)
        finally:
            server.kill()
        suites = ET.parse(report).getroot()  # noqa: S314 (written by h2spec here)
        cases = [(suite.get("package"), case) for suite in suites.iter("testsuite") for case in suite.iter("testcase")]
    failed = {
        f"{section}: {case.get('classname')}"
        for section, case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    return len(cases), failed
