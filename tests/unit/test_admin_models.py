"""The admin API's answers have every field of the records."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from headgate.controlplane.access import Caller, TokenRecord
from headgate.controlplane.blocks import BlockRecord
from headgate.controlplane.keys import KeyRecord
from headgate.controlplane.publisher import Published
from headgate.controlplane.rules import RuleRecord, RuleVersion
from headgate.controlplane.snapshot_history import SnapshotRecord
from headgate.controlplane.tiers import TierRecord
from headgate.controlplane.users import UserRecord
from headgate.edge.admin.endpoints.blocks import BlockView, NewBlock
from headgate.edge.admin.endpoints.credentials import CallerView, KeyView, NewKey, NewToken, TokenView
from headgate.edge.admin.endpoints.rule_sets import PublishedView, SnapshotView
from headgate.edge.admin.endpoints.rules import RuleVersionView, RuleView
from headgate.edge.admin.endpoints.tiers import NewTier, TierView
from headgate.edge.admin.endpoints.users import NewUser, UserView
from headgate.edge.admin.middleware import canonical
from headgate.edge.admin.pages import cursor, position_of

if TYPE_CHECKING:
    from pydantic import BaseModel


@pytest.mark.parametrize(
    ("view", "record", "left_out"),
    [
        (TierView, TierRecord, set()),
        (UserView, UserRecord, set()),
        (KeyView, KeyRecord, set()),
        (BlockView, BlockRecord, set()),
        (TokenView, TokenRecord, set()),
        (CallerView, Caller, {"token_id"}),
        (RuleView, RuleRecord, set()),
        (RuleVersionView, RuleVersion, set()),
        (SnapshotView, SnapshotRecord, set()),
        (PublishedView, Published, set()),
    ],
)
def test_every_field_of_a_record_is_answered(view: type[BaseModel], record: Any, left_out: set[str]) -> None:  # noqa: ANN401 (any dataclass)
    """A new field of a record is in the answer."""
    worked_out = {name for name in view.model_fields if isinstance(getattr(record, name, None), property)}
    assert set(view.model_fields) - worked_out == {each.name for each in fields(record)} - left_out


@pytest.mark.parametrize("model", [NewTier, NewUser, NewKey, NewBlock, NewToken])
def test_bodies_are_read_strictly(model: type[BaseModel]) -> None:
    """No type is converted, and no unknown member is accepted."""
    assert model.model_config["strict"]
    assert model.model_config["extra"] == "forbid"
    assert model.model_config["json_schema_extra"], "an example"


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/v1/users/a%2Fb", "/v1/users/a%2Fb"),
        (b"/v1/users/a%2fb?x=1", "/v1/users/a%2Fb"),
        (b"/v1/%75sers/u1", "/v1/users/u1"),
        (b"/v1/users/%C3%BC", "/v1/users/%C3%BC"),
        ("/v1/users/ü".encode(), "/v1/users/%C3%BC"),
        (b"/v1/users/a+b", "/v1/users/a%2Bb"),
        (b"/v1/users/%", "/v1/users/%25"),
        (b"/v1/users/%ff", None),
        (b"/v1/users/%ed%a0%80", None),
    ],
)
def test_a_path_has_one_spelling(raw: bytes, path: str | None) -> None:
    """A path is canonical however it was percent-encoded, as long as it is UTF-8."""
    assert canonical(raw) == path


@pytest.mark.parametrize("position", ["u1", "", "ü/日本", 7, ["2026-01-31T12:00:00+00:00", "id", "x"]])
def test_a_cursor_gives_back_its_position(position: object) -> None:
    """A cursor gives back its position, in its own list."""
    assert position_of("users", cursor("users", position), lambda read: read) == position
