"""The function in deploy/kong/kong.yaml asks before it lets a call through: in nginx with Lua, which Kong is built on.

Kong itself does not run here. What Kong gives the function is in kong_stand_in.lua.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import yaml
from tests.acceptance.gateways import DEPLOY, TWO_A_DAY, Upstream, running, upstream, with_ports
from tests.support.optional_servers import find_server
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Start

__all__ = ["upstream"]
pytestmark = pytest.mark.needs("nginx-lua")
TRUSTED = {"trusted_proxies": "127.0.0.1"}


@contextmanager
def kong_function(folder: Path, service_url: str, application: Upstream, **changes: str) -> Iterator[httpx.Client]:
    """The shipped function in the access phase of an nginx, before an application; `changes` are texts to replace."""
    port = free_port()
    text = with_ports((DEPLOY / "kong/kong.yaml").read_text(), {8080: httpx.URL(service_url).port or 0})
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (plugin,) = yaml.safe_load(text)["plugins"]
    (function,) = plugin["config"]["access"]
    (folder / "access.lua").write_text(function)
    stand_in = Path(__file__).with_name("kong_stand_in.lua")
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"""
        daemon off; master_process off; pid {folder}/pid; error_log stderr;
        events {{ }}
        http {{
            access_log off; {places}
            init_by_lua_file {stand_in};
            server {{
                listen 127.0.0.1:{port};
                location / {{
                    access_by_lua_file {folder}/access.lua;
                    proxy_pass http://127.0.0.1:{application.port};
                }}
            }}
        }}
    """)
    command = [str(find_server("nginx-lua")), "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
    with running(command, port, folder / "nginx.log") as client:
        yield client


def test_the_function_for_kong_passes_a_refusal_on(start: Start, tmp_path: Path, upstream: Upstream) -> None:
    """Calls that pass carry the headers; the one too many gets 429, the headers, Retry-After and the problem."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(TWO_A_DAY)
    with kong_function(tmp_path, start("--rules", str(rules)).url, upstream) as client:
        passed = [client.get("/api/search?q=1") for _ in range(2)]
        assert [(answer.status_code, answer.text) for answer in passed] == [(200, "hello\n")] * 2
        assert [answer.headers["X-RateLimit-Remaining"] for answer in passed] == ["1", "0"]
        assert passed[0].headers["RateLimit-Policy"] == '"two";q=2;w=86400'
        refused = client.get("/api/search")
        assert refused.status_code == 429
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert 1 <= int(refused.headers["Retry-After"]) <= 86_400
        assert refused.headers["X-RateLimit-Remaining"] == "0"
        assert refused.json()["violated-policies"] == ["two"]


def test_the_function_for_kong_describes_the_call_itself(start: Start, tmp_path: Path, upstream: Upstream) -> None:
    """Method and path are those of the call, whatever its headers say; a block is passed on as 403 with its reason."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        'rules: [{name: shut, action: block, match: {endpoints: ["/closed/*"], methods: [POST]},'
        " response: {message: closed now}}]"
    )
    with kong_function(tmp_path, start("--rules", str(rules)).url, upstream) as client:
        refused = client.post("/closed/path?a=b", content=b"x", headers={"X-Forwarded-Uri": "/open"})
        assert (refused.status_code, refused.json()["message"]) == (403, "closed now")
        assert client.get("/closed/path", headers={"X-Forwarded-Method": "POST"}).status_code == 200
        twice = client.get("/open", headers=[("X-Api-Key", "a"), ("X-Api-Key", "b")])
        assert twice.status_code == 400


def test_the_function_for_kong_names_the_caller(start: Start, tmp_path: Path, upstream: Upstream) -> None:
    """Behind a trusted gateway, callers are counted by their address, and cannot choose another one."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(TWO_A_DAY)
    service = start("--rules", str(rules), **TRUSTED)
    with kong_function(
        tmp_path, service.url, upstream, **{"kong.client.get_forwarded_ip()": '"203.0.113.7"'}
    ) as client:
        claims = [{"X-Forwarded-For": f"198.51.100.{number}", "Forwarded": "for=192.0.2.1"} for number in range(3)]
        assert [client.get("/", headers=claim).status_code for claim in claims] == [200, 200, 429]
    checked = httpx.post(f"{service.url}/v1/check", json={"ip": "203.0.113.7"}, trust_env=False)
    assert checked.status_code == 429


@pytest.mark.parametrize(("admits", "status"), [("true", 200), ("false", 503)])
def test_the_function_for_kong_follows_its_choice_while_headgate_is_unavailable(
    start: Start, tmp_path: Path, upstream: Upstream, admits: str, status: int
) -> None:
    """As shipped all calls pass then; with `admits_on_error = false` none does."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(TWO_A_DAY)
    service = start("--rules", str(rules))
    changes = {"admits_on_error = true": f"admits_on_error = {admits}"}
    with kong_function(tmp_path, service.url, upstream, **changes) as client:
        assert client.get("/").status_code == 200
        service.process.kill()
        service.process.wait()
        assert [client.get("/").status_code for _ in range(3)] == [status] * 3
