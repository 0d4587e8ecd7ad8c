from __future__ import annotations

import json
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jsonschema  # type: ignore[import-untyped] # it has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate.adapters
from headgate.adapters.event_json import event_json
from headgate.adapters.kafka.delivery import message_of, subject_of
from headgate.core.decision import Source
from headgate.core.event import Event, EventBatch, EventKind
from headgate.edge.admin.endpoints.activity import EventView

if TYPE_CHECKING:
    from pathlib import Path

_TEXT: Final = st.none() | st.text(min_size=1, max_size=20)
_NUMBER: Final = st.none() | st.integers(0, 10**15)
_SECONDS: Final = st.none() | st.floats(0, 1e9)
_PLAIN: Final = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=20)
_EXTRA: Final = st.none() | st.dictionaries(
    st.sampled_from(["attributes", "route", "cost", "limits"]),
    st.recursive(_PLAIN, lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=5),
)
EVENTS: Final = st.builds(
    Event,
    at=st.integers(1, 250_000_000_000_000_000),
    sequence=st.integers(0, 2**63 - 1),
    id=st.text(min_size=1),
    user=_TEXT,
    tenant=_TEXT,
    api_key=_TEXT,
    ip=_TEXT,
    tier=_TEXT,
    method=_TEXT,
    endpoint=_TEXT,
    rule=_TEXT,
    decision=st.sampled_from([kind.value for kind in EventKind]),
    source=st.sampled_from([source.value for source in Source]),
    used=_NUMBER,
    limit=_NUMBER,
    cost=_NUMBER,
    status=st.integers(100, 599),
    retry_after=_SECONDS,
    latency=_SECONDS,
    extra=_EXTRA,
)
_OWN: Final = {"schema", "version", "sequence", "extra"}
"""What is sent beside the fields that the admin API shows."""


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(files(headgate.adapters).joinpath("event.schema.json").read_bytes())
    return schema


_validator: Final = jsonschema.Draft202012Validator(_schema())


def _batch(event: Event, region: str = "eu") -> EventBatch:
    return EventBatch("b1", "server-1", region, [event])


@given(EVENTS, st.sampled_from(["", "eu"]))
def test_every_event_fits_the_schema(event: Event, region: str) -> None:
    """Whatever an event holds, its JSON fits the published schema, and says the same."""
    data = json.loads(event_json(event, _batch(event, region)))
    _validator.validate(data)
    same = set(Event._fields) - {"at", "used", "extra"}
    assert {name: data[name] for name in same} == {name: getattr(event, name) for name in same}
    assert (data["count"], data["region"], data["server"]) == (event.used, region or None, "server-1")
    seconds, micros = divmod(event.at, 1_000_000)
    at = datetime.fromisoformat(data["at"])
    assert (int(at.replace(microsecond=0).timestamp()), at.microsecond) == (seconds, micros)


def test_the_schema_is_itself_right() -> None:
    """The schema is a JSON Schema; each member of an event is in it, required, and has the admin API's name."""
    schema = _schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    members = set(schema["properties"])
    assert set(schema["required"]) == members
    assert set(EventView.model_fields) <= members
    assert members - set(EventView.model_fields) <= _OWN
    assert set(schema["properties"]["decision"]["enum"]) == set(EventKind)


def test_the_schema_is_published(request: pytest.FixtureRequest) -> None:
    """The schema in the documentation is the one in the package, and the page beside it names every member."""
    reference: Path = request.config.rootpath / "docs/reference"
    assert json.loads((reference / "event.schema.json").read_bytes()) == _schema()
    page = (reference / "events.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in _schema()["properties"])


@given(EVENTS)
def test_the_key_is_the_subject(event: Event) -> None:
    """A record's key is the user, else the API key, else the tenant, else the address, else there is none."""
    named = [
        f"{kind}:{name}"
        for kind, name in zip(
            ("user", "key", "tenant", "ip"), (event.user, event.api_key, event.tenant, event.ip), strict=True
        )
        if name
    ]
    assert subject_of(event) == (named[0] if named else None)
    message = message_of(event, _batch(event))
    assert message is not None
    assert message.key == (named[0].encode() if named else None)


@pytest.mark.parametrize(
    "parts",
    [{"user": "\ud800"}, {"extra": {"cost": object()}}, {"at": 10**30}, {"endpoint": "\udfff"}],
)
def test_what_json_cannot_say_is_no_record(parts: dict[str, Any]) -> None:
    """An event that JSON cannot say has no record, and harms nothing else."""
    event = Event._make([1, 1, "d1", *[None] * (len(Event._fields) - 3)])._replace(**parts)
    assert message_of(event, _batch(event)) is None
