"""Hostile lines: whatever a log says, it is a call or it is counted as none."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.adapters import zones
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidRequest
from headgate.simulate.log_file import LogFile
from headgate.simulate.log_lines import AccessLog, JsonLog, path_of, time_of
from headgate.simulate.simulation import Simulation
from headgate.simulate.traffic import EventParser, LoggedRequest, Span

LINE = '203.0.113.9 - u_42 [31/Jan/2026:12:00:00 +0000] "GET /search?q=a HTTP/1.1" 200 512 "-" "curl/8.5"'
RULES = parse_rule_set(
    {"rules": [{"name": "all", "per": ["user", "ip", "attribute:region"], "limits": "2/minute"}]}, zones.zone
)

TEXTS = st.text(max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["at", "user", "tenant", "api_key", "ip", "tier", "method", "endpoint", "path", "cost", "extra", "decision", "rule",
     "source", "server", "sequence", "time"]
)  # fmt: skip
EXTRAS = st.dictionaries(st.sampled_from(["attributes", "route", "cost", "limits"]), JSON)
TIMES = st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31", 1_769_860_800, 1_769_860_800.5, "1e400", -1, True])
OBJECTS = st.dictionaries(NAMES, JSON | EXTRAS | TIMES | st.just("allowed") | st.just("10.0.0.1"), max_size=8)


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A good line with something cut out of it or put into it."""
    start = draw(st.integers(0, len(LINE)))
    end = draw(st.integers(start, len(LINE)))
    return LINE[:start] + draw(TEXTS) + LINE[end:]


def _decided(call: LoggedRequest) -> None:
    """A call that was read can be decided, or is counted as one that cannot."""
    replay = Simulation(("draft", RULES), None, Span(1, 1, 2**60)).replay
    replay.take([call])
    assert replay.requests + replay.undecidable == 1


@given(mangled() | TEXTS)
@example(LINE.replace("u_42", 'a "b] [c'))
@example(LINE.replace("/search?q=a", r"/\x22\xff\"\\"))
@example(LINE.replace("31/Jan", "31/Feb"))
@example(LINE.replace("+0000", "+9999"))
@example(LINE.replace("GET /search?q=a", "GET http://[::1/x"))
def test_a_line_of_an_access_log_is_a_call_or_an_error(line: str) -> None:
    """And never anything else."""
    try:
        call = AccessLog().request(line)
    except ValueError:
        return
    assert call.at > 0
    _decided(call)


@given(OBJECTS | JSON)
@example({"at": 1e300, "decision": "denied"})
@example({"at": 1, "decision": "denied", "extra": {"limits": {"user": {"all": 5}}}})
@example({"at": 1, "decision": "denied", "extra": {"limits": {"user": 5}}})
@example({"at": 1, "decision": "denied", "sequence": "x", "server": 5, "source": 7})
def test_a_line_of_json_is_a_call_or_an_error(data: Any) -> None:  # noqa: ANN401 (whatever JSON says)
    """And never anything else, be it an event or not."""
    for fields in ({}, {"user": "tenant.a", "cost": "cost", "attribute.region": "extra"}):
        try:
            call = JsonLog(fields).request(json.dumps(data))
        except (ValueError, OverflowError, InvalidRequest):
            continue
        assert call.at > 0
        _decided(call)


@given(st.lists(st.binary(max_size=60) | st.just(LINE.encode()), max_size=8), st.booleans(), st.integers(0, 40))
def test_a_file_of_anything_is_read_to_its_end(lines: list[bytes], packed: bool, cut: int) -> None:  # noqa: FBT001 (hypothesis)
    """Every line is a call, blank, or counted as skipped; a damaged archive is told, not raised."""
    content = b"\n".join(lines) + b"\n"
    if packed:
        content = gzip.compress(content)
        content = content[: max(2, len(content) - cut)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content)
        log = LogFile(path)
        calls = [call for page in log.pages() for call in page]
    assert len(calls) + log.skipped.count <= len(content.splitlines()) + len(lines) + 1
    assert len(log.skipped.examples) <= 5
    assert log.share == 1.0


@given(JSON)
def test_what_is_extra_about_an_event_is_read_or_refused(extra: Any) -> None:  # noqa: ANN401 (whatever JSON says)
    """Nothing that a column may hold is an error of another kind."""
    event = ["u", None, None, "10.0.0.1", None, "GET", "/", None, "allowed", "store", "s", 1, extra]
    try:
        _decided(EventParser().of(1, event))
    except InvalidRequest:
        return


@given(TEXTS)
def test_a_path_is_text_or_an_error(target: str) -> None:
    """Whatever stands where a path should."""
    try:
        assert isinstance(path_of(target), str)
    except ValueError:
        return


@given(st.one_of(st.integers(), st.floats(), TEXTS, st.none(), st.booleans(), st.datetimes().map(str)))
def test_a_time_is_in_range_or_an_error(value: Any) -> None:  # noqa: ANN401 (whatever JSON says)
    """Whatever stands where a time should."""
    try:
        assert 0 < time_of(value) < 2**60
    except (ValueError, OverflowError):
        return
