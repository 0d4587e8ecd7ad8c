"""Traces: what a collector gets, and what happens while there is none."""

from __future__ import annotations

import gzip
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.acceptance.test_gateways_rls import METHOD, Client
from tests.support.envoy_messages import question

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.service import Start

RULES: Final = "rules: [{name: once, per: [user], limits: 1/day, algorithm: fixed_window}]"
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT: Final = "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """A collector that keeps every span it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.resources: list[dict[str, str]] = []
        self.spans: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.resources.append({each.key: each.value.string_value for each in resource.resource.attributes})
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_about: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def attributes(span: Any) -> dict[str, Any]:  # noqa: ANN401 (a message)
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_questions_become_spans_of_their_callers_traces(start: Start, rules: Path, collector: Collector) -> None:
    """Each question is a span below its caller's, with the decision and nothing of who was asking."""
    service = start("--rules", str(rules), otel_endpoint=collector.url)
    sampled, unsampled = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
    denied = None
    for _ in range(2):
        denied = service.http.post("/v1/check", json={"user": "mallory"}, headers={"traceparent": sampled})
    assert denied is not None
    assert denied.status_code == 429
    service.http.post("/v1/check", json={"user": "mallory"}, headers={"traceparent": unsampled})
    service.http.get("/v1/forward-auth/private/path", headers={"traceparent": sampled, "X-API-Key": "secret-key"})
    service.http.post("/v1/check:batch", json={"checks": [{"user": "a"}, {"user": "b"}]})
    service.http.post("/v1/check", content=b"{", headers={"traceparent": "not one"})
    for path in ("/livez", "/readyz", "/metrics"):
        service.http.get(path, headers={"traceparent": sampled})
    client = Client(service)
    ask: Any = client.channel.unary_unary(METHOD)
    ask(question("web", {"entries": {"user": "mallory"}}), timeout=20, metadata=[("traceparent", sampled)])
    assert client.health() == 1
    client.channel.close()
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    assert all(resource["service.name"] == "headgate" for resource in collector.resources)
    names = [span.name for span in collector.spans]
    assert sorted(names) == sorted(
        [*["/v1/check"] * 3, "/v1/forward-auth", "/v1/check:batch", METHOD.removeprefix("/")],
    )
    first, second, gateway, batch, malformed, rls = collector.spans
    for span in (first, second, gateway, rls):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert span.kind == 2  # a server's
        assert span.end_time_unix_nano > span.start_time_unix_nano
    for span in (batch, malformed):
        assert span.trace_id.hex() != TRACE
    about = attributes(second)
    assert about == {
        "http.route": "/v1/check",
        "http.response.status_code": 429,
        "headgate.decision": "denied",
        "headgate.rule": "once",
        "headgate.source": "store",
        "headgate.snapshot": 1,
        "headgate.decision_id": denied.json()["id"],
    }
    assert attributes(first)["headgate.decision"] == "allowed"
    assert attributes(rls)["headgate.decision"] == "denied"
    assert attributes(batch)["headgate.decision"] == "allowed"
    assert [event.name for event in batch.events] == ["decision"]
    assert attributes(malformed) == {"http.route": "/v1/check", "http.response.status_code": 400}
    told = str(collector.spans)
    assert not [word for word in ("mallory", "secret-key", "private", "127.0.0.1") if word in told]


def test_an_unavailable_collector_costs_one_line(start: Start, rules: Path) -> None:
    """Nothing else is said, least of all a password; every question is answered, and the end does not wait."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        unreachable = f"http://ann:hush@127.0.0.1:{taken.getsockname()[1]}"
    service = start("--rules", str(rules), otel_endpoint=unreachable)
    for number in range(600):
        assert service.check(user=f"u{number}").status_code == 200
    service.wait_for_error("spans are dropped until it recovers")
    service.check(user="after")
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    assert len([line for line in service.errors.splitlines() if "trace" in line.lower()]) == 1
    assert "hush" not in service.errors
    assert "Traceback" not in service.errors
