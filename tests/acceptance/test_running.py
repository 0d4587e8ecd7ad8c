"""Starting, changing the rules of, and stopping the decision service."""

from __future__ import annotations

import resource
import signal
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Run, Start

TWO_A_MINUTE = "rules: [{name: two, per: [user], limits: 2/minute}]"
FIVE_A_MINUTE = "rules: [{name: five, per: [user], limits: 5/minute}]"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(TWO_A_MINUTE)
    return file


def test_a_start_says_where_and_by_which_rules(start: Start, rules: Path) -> None:
    """The first lines name the address, the rules file with its number of rules, and three commands to try."""
    service = start("--rules", str(rules))
    assert f"listens on {service.url}\n" in service.output
    assert f"{rules} (1 rule; changes are picked up)" in service.output
    assert service.output.count("curl ") == 3
    assert "\x1b" not in service.output


def test_everything_can_be_set_by_the_environment(start: Start, rules: Path) -> None:
    """The rules file and the host come from HEADGATE_ variables where no option says otherwise."""
    service = start(rules_file=str(rules), host="0.0.0.0")  # noqa: S104 (for a second)
    assert service.check(user="u1").json()["policy"] == "two"


def test_ipv6_is_served(start: Start, rules: Path) -> None:
    """The service listens on an IPv6 address as it does on any other."""
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    service = start("--rules", str(rules), "--host", "::1")
    assert service.url.startswith("http://[::1]:")
    assert service.check(user="u1").status_code == 200


def test_a_changed_rules_file_is_picked_up(start: Start, rules: Path) -> None:
    """New rules are active within seconds of being written, and the log says so."""
    service = start("--rules", str(rules))
    assert service.check(user="u1").json()["policy"] == "two"
    rules.write_text(FIVE_A_MINUTE)
    service.wait_for_error("rules changed, snapshot 2 is active")
    assert service.http.get("/readyz").json()["snapshot"] == 2
    assert service.check(user="u1").json()["policy"] == "five"


def test_a_broken_rules_file_is_refused_and_the_old_rules_stay(start: Start, rules: Path) -> None:
    """A bad change is refused with file, line and field; the active rules stay until a good change arrives."""
    service = start("--rules", str(rules))
    rules.write_text("rules:\n  - {name: three, per: [user], limits: 3/minut}\n")
    service.wait_for_error(r"refused.*snapshot 1 stays active.*rules\.yaml:2: rules\[0\]\.limits: 'minut'")
    assert service.check(user="u1").json()["policy"] == "two"
    rules.unlink()
    service.wait_for_error(r"refused.*cannot be read: No such file")
    assert service.check(user="u1").json()["policy"] == "two"
    rules.write_text(FIVE_A_MINUTE)
    service.wait_for_error("snapshot 2 is active")
    assert service.check(user="u1").json()["policy"] == "five"


def test_sigterm_ends_it_in_order(start: Start, rules: Path) -> None:
    """After SIGTERM the service is not ready but still decides, until its notice is over; then it ends with 0."""
    service = start("--rules", str(rules), notice_seconds="600")
    service.signal(signal.SIGTERM)
    while (answer := service.http.get("/readyz")).status_code == 200:
        pass
    assert answer.status_code == 503
    assert answer.json()["status"] == "stopping"
    assert service.http.get("/livez").status_code == 200
    assert service.check(user="u1").status_code == 200
    service.signal(signal.SIGINT)
    assert service.wait() == 0
    assert service.errors == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(service.url)


def test_requests_in_flight_are_finished(start: Start, rules: Path) -> None:
    """A request that has begun when the service is told to stop is still answered."""
    service = start("--rules", str(rules))
    with service.connect() as connection:
        connection.sendall(b'POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"user"')
        service.http.get("/livez")  # by now the first half has arrived
        service.signal(signal.SIGTERM)
        while _accepts(service.url):
            pass
        connection.sendall(b':"u1"}')
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 200")
    assert service.wait() == 0


def test_draining_is_bounded(start: Start, rules: Path) -> None:
    """A caller that never ends its request cannot keep the service from ending."""
    service = start("--rules", str(rules), drain_seconds="0.2", body_seconds="600")
    with service.connect() as connection:
        connection.sendall(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        service.http.get("/livez")
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
    assert "requests still in flight after a drain of 0.2 seconds were cut off" in service.errors


def test_ctrl_c_ends_it(start: Start, rules: Path) -> None:
    """SIGINT ends the service without notice, with 0 and without a word."""
    service = start("--rules", str(rules), notice_seconds="600")
    service.signal(signal.SIGINT)
    assert service.wait() == 0
    assert service.errors == ""


def test_idle_connections_block_no_other_caller(start: Start, rules: Path) -> None:
    """More than a thousand connections that say nothing leave the service free to answer others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 1_100
    if hard != resource.RLIM_INFINITY and hard < 2 * many:
        pytest.skip("this machine allows too few open files")
    service = start("--rules", str(rules))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * many), hard))
    with ExitStack() as idle:
        for _ in range(many):
            idle.enter_context(service.connect())
        assert service.http.get("/livez").status_code == 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_port_in_use_is_named(start: Start, headgate: Run, rules: Path) -> None:
    """A second service on the same port, which the system would allow, is refused with a sentence."""
    service = start("--rules", str(rules))
    port = str(httpx.URL(service.url).port)
    refused = headgate("serve", "--rules", str(rules), "--port", port)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"headgate: cannot listen on '127.0.0.1', port {port}: another program uses it; "
        "stop that program, or choose another port (--port or HEADGATE_PORT)\n"
    )


def test_one_port_for_two_servers_is_refused(headgate: Run, rules: Path) -> None:
    """The service for checks and the one for Envoy cannot share a port, which the system would allow."""
    port = str(free_port())
    refused = headgate("serve", "--rules", str(rules), "--port", port, "--grpc-port", port)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"headgate: Envoy's rate-limit service: cannot listen on '127.0.0.1', port {port}: another program uses it; "
        "stop that program, or choose another port (--grpc-port or HEADGATE_GRPC_PORT)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rules", "RULES", "--workers", "3"], "3 workers on memory:// would each count by themselves"),
        (["--rules", "RULES", "--port", "99999"], "--port is '99999'; write a whole number from 0 to 65535"),
        (["--rules", "RULES", "--host", "203.0.113.1"], "this machine has no such address"),
        (["--rules", "RULES", "--host", "no such host"], "cannot listen on 'no such host'"),
        (["--rules", "missing.yaml"], "missing.yaml: cannot be read: No such file or directory"),
        (["--rules", "/"], "cannot be read: Is a directory"),
    ],
)
def test_a_start_that_cannot_work_is_refused(headgate: Run, rules: Path, arguments: list[str], sentence: str) -> None:
    """What cannot be served is said in a sentence, with exit code 1 and no traceback."""
    words = [str(rules) if each == "RULES" else each for each in arguments]
    refused = headgate("serve", *words, port="0", grpc_port="0")  # no program on the usual ports gets in the way
    assert refused.returncode == 1
    assert sentence in refused.stderr
    assert refused.stderr.startswith("headgate: ")
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_all_problems_of_the_rules_are_listed(headgate: Run, rules: Path) -> None:
    """Rules that are not right keep the service from starting, each problem with file, line and field."""
    rules.write_text("rules:\n  - {name: a, limits: 0/minute}\n  - {name: a, limits: 1/minute, colour: red}\n")
    refused = headgate("serve", "--rules", str(rules))
    assert refused.returncode == 1
    lines = refused.stderr.splitlines()
    assert lines[0] == "headgate: the rules are refused, for 3 problems:"
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [f"{rules}:2", f"{rules}:3", f"{rules}:3"]
    assert "colour" in refused.stderr


def test_a_malformed_or_unknown_variable_is_named(headgate: Run, rules: Path) -> None:
    """A malformed variable stops the start; an unknown one is warned about, with the one it resembles."""
    refused = headgate("serve", "--rules", str(rules), body_limit="lots", body_limt="1")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "headgate: HEADGATE_BODY_LIMT is not a setting and is ignored; did you mean HEADGATE_BODY_LIMIT?",
        "headgate: HEADGATE_BODY_LIMIT is 'lots'; write a whole number from 1 to 16777216",
    ]


def test_a_store_that_cannot_be_opened_is_named_without_its_password(headgate: Run, rules: Path) -> None:
    """An address that is no store's stops the start with the variable's name, and keeps its secrets."""
    refused = headgate("serve", "--rules", str(rules), redis_url="gopher://:hush@host/0")
    assert refused.returncode == 1
    assert refused.stderr.startswith("headgate: HEADGATE_REDIS_URL is malformed: ")
    assert "hush" not in refused.stderr


def _accepts(url: str) -> bool:
    try:
        httpx.get(f"{url}/livez")
    except httpx.TransportError:
        return False
    return True
