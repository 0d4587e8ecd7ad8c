"""A real Envoy whose rate-limit service is flooded by another client."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.gateways import TWO_A_DAY, Upstream, envoy, upstream
from tests.acceptance.test_gateways_envoy import ports_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Start

pytestmark = pytest.mark.serial

__all__ = ["upstream"]

ATTACKS = "valid calls,many fields,rapid reset,large questions"


def test_a_caller_over_its_limit_stays_refused_while_another_client_floods(
    start: Start, tmp_path: Path, upstream: Upstream
) -> None:
    """Envoy lets pass what it gets no answer for, so every call has to be answered."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(TWO_A_DAY)
    service = start("--rules", str(rules))
    ports = ports_of(service, upstream)
    with envoy(tmp_path, "rls.yaml", ports) as client:
        assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]
        command = [sys.executable, "-m", "tests.support.grpc_attacks", ATTACKS, str(ports[8082]), "10", "1"]
        attacker = subprocess.Popen(command)  # noqa: S603 (ourselves)
        statuses = []
        try:
            while attacker.poll() is None:
                statuses.append(client.get("/").status_code)
        finally:
            attacker.kill()
            attacker.wait()
    assert attacker.returncode == 0
    assert set(statuses) == {429}
