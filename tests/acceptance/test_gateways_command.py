"""`headgate gateway`: a complete gateway by one command."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.acceptance.gateways import MANY_A_MINUTE, TWO_A_DAY, Upstream, everything_passes, upstream
from tests.acceptance.processes import children
from tests.support.service import HEADGATE, PATIENCE, Run, environment
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

__all__ = ["upstream"]


class Gateway:
    """A running `headgate gateway`."""

    def __init__(self, application: Upstream, *options: str, **settings: str) -> None:
        command = [HEADGATE, "gateway", "--upstream", f"http://127.0.0.1:{application.port}", "--port", "0", *options]
        self.process = subprocess.Popen(  # noqa: S603 (our own command)
            command,
            stdout=subprocess.PIPE,
            env=environment(port="0", grpc_port="0", notice_seconds="0", **settings),
            start_new_session=True,
        )
        self.output = ""
        self.url = self._wait_for(r"the gateway listens on (\S+) in front of")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=PATIENCE)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False, verify=False)  # noqa: S501 (self-signed)

    def child(self, name: str) -> int:
        """The process that this one has started, by a word of its command."""
        return children(self.process.pid, name)[0]

    def _wait_for(self, pattern: str) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not (found := re.search(pattern, self.output)):
                read = b""
                if selector.select(max(0, deadline - time.monotonic())):
                    read = os.read(self.process.stdout.fileno(), 65_536)
                if not read:
                    self.process.kill()
                    pytest.fail(f"{pattern!r} never came: {self.output}")
                self.output += read.decode()
        return found[1]


@pytest.fixture
def rules(tmp_path: Path) -> str:
    file = tmp_path / "rules.yaml"
    file.write_text(TWO_A_DAY)
    return str(file)


def test_one_command_is_a_gateway(upstream: Upstream, rules: str) -> None:
    """Calls pass with the headers, the one too many is refused with a body, and Ctrl-C ends everything."""
    with Gateway(upstream, "--rules", rules) as gateway:
        with gateway.client() as client:
            passed = [client.get("/") for _ in range(2)]
            assert [(each.status_code, each.headers["X-RateLimit-Remaining"]) for each in passed] == [
                (200, "1"),
                (200, "0"),
            ]
            refused = client.get("/")
            assert (refused.status_code, refused.json()["violated-policies"]) == (429, ["two"])
            assert int(refused.headers["Retry-After"]) > 0
        started = [gateway.child(name) for name in ("envoy.json", "headgate.cli.main")]
        os.killpg(gateway.process.pid, signal.SIGINT)  # as a terminal does
        assert gateway.process.wait(PATIENCE) == 0
        for pid in started:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_through_the_gateway_everything_passes_and_tls_is_an_option(
    upstream: Upstream, rules: str, tmp_path: Path
) -> None:
    """Upgrades, streams and large bodies pass; with a certificate, callers connect over TLS."""
    (tmp_path / "rules.yaml").write_text(MANY_A_MINUTE)
    with Gateway(upstream, "--rules", rules) as gateway, gateway.client() as client:
        everything_passes(client, upstream)
    made = [str(tmp_path / name) for name in ("key.pem", "cert.pem")]
    subprocess.run(  # noqa: S603 (openssl makes a certificate)
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",  # noqa: S607 (from PATH)
         "-subj", "/CN=localhost", "-keyout", made[0], "-out", made[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    with (
        Gateway(upstream, "--rules", rules, "--key", made[0], "--cert", made[1]) as gateway,
        gateway.client() as client,
    ):
        assert gateway.url.startswith("https://")
        assert client.get("/").headers["X-RateLimit-Limit"] == "1000"


@pytest.mark.parametrize(("option", "status"), [("allow", 200), ("deny", 503)])
def test_while_headgate_is_unavailable_the_gateway_follows_the_option(
    upstream: Upstream, rules: str, option: str, status: int
) -> None:
    """Once the service has gone calls pass or not, as --on-error says, until the gateway ends itself."""
    with Gateway(upstream, "--rules", rules, "--on-error", option) as gateway, gateway.client() as client:
        assert client.get("/").status_code == 200
        gateway.process.send_signal(signal.SIGSTOP)  # or it would end Envoy as well
        os.kill(gateway.child("headgate.cli.main"), signal.SIGKILL)
        # Its processes end a moment after their supervisor.
        wait_until(lambda: client.get("/").status_code == status, f"calls are answered with {status}")
        gateway.process.send_signal(signal.SIGCONT)
        assert gateway.process.wait(PATIENCE) == 1


def test_what_makes_no_sense_is_said(headgate: Run) -> None:
    """A wrong upstream or half of a certificate is a sentence, not a start."""
    wrong = headgate("gateway", "--upstream", "ftp://x", "--port", "0")
    assert (wrong.returncode, "--upstream is 'ftp://x'" in wrong.stderr) == (1, True)
    half = headgate("gateway", "--upstream", "http://127.0.0.1:1", "--port", "0", "--cert", "x.pem")
    assert (half.returncode, "--cert and --key go together" in half.stderr) == (1, True)
