"""Tiers, users and blocks as they are sent and answered."""

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from headgate.edge.admin.models.shared import Input, LimitLists, Limits, NamedLimits, Output, Time, example

_LABEL: Final = Field(default=None, min_length=1, max_length=255)
_DISPLAY: Final = "Free of charge"


class TierBody(Input):
    """What a tier is."""

    model_config = example(display_name=_DISPLAY, price=0, limits={"search": "100/hour", "api": "unlimited"})

    display_name: str | None = _LABEL
    price: Annotated[float, Field(ge=0, le=1_000_000_000_000, allow_inf_nan=False)] | None = None
    limits: NamedLimits | None = Field(default=None, description="What rules call `tier:NAME`.")
    is_default: bool | None = Field(default=None, description="Whoever names no tier is on this one.")


class NewTier(TierBody):
    """A tier to be."""

    model_config = example(name="free", display_name=_DISPLAY, price=0, limits={"search": "100/hour"}, is_default=True)

    name: str = Field(min_length=1, max_length=64)


class TierView(Output):
    """A tier as it is kept."""

    model_config = example(
        name="free",
        display_name=_DISPLAY,
        price=0,
        limits={"search": ["100/hour"]},
        is_default=True,
        version=1,
        created_at="2026-01-31T12:00:00Z",
        updated_at="2026-01-31T12:00:00Z",
    )

    name: str
    display_name: str | None
    price: float
    limits: LimitLists
    is_default: bool
    version: int
    created_at: datetime
    updated_at: datetime


class TierPage(Output):
    """Tiers in the order in which they were made."""

    items: list[TierView]
    next: str | None


class UserBody(Input):
    """What is known of a user."""

    model_config = example(tier="premium", overrides={"search": "5/minute"})

    tier: str | None = _LABEL
    overrides: NamedLimits | None = Field(default=None, description="Limits in place of a rule's own, by rule.")


class NewUser(UserBody):
    """A user to be."""

    model_config = example(id="u1", tier="premium", overrides={"search": "5/minute"})

    id: str = Field(min_length=1, max_length=255)


class OverrideBody(Input):
    """Limits in place of a rule's own."""

    model_config = example(limits="5/minute")

    limits: Limits


class UserView(Output):
    """A user as it is kept."""

    model_config = example(
        id="u1",
        tier="premium",
        tier_since="2026-01-31T12:00:00Z",
        overrides={"search": ["5/minute"]},
        requests_today=12,
        requests_month=340,
        last_request="2026-02-01T09:30:00Z",
        times_exceeded=2,
        quota_reset=None,
        version=4,
        created_at="2026-01-31T12:00:00Z",
        updated_at="2026-01-31T12:00:00Z",
    )

    id: str
    tier: str | None
    tier_since: datetime | None
    overrides: LimitLists
    requests_today: int
    requests_month: int
    last_request: datetime | None
    times_exceeded: int
    quota_reset: datetime | None = Field(description="When what was used was last forgiven.")
    version: int
    created_at: datetime
    updated_at: datetime


class UserPage(Output):
    """Users by id."""

    items: list[UserView]
    next: str | None


class BlockBody(Input):
    """Why, and how long."""

    model_config = example(reason="scraping", until="2026-12-31T00:00:00Z")

    reason: str | None = Field(default=None, min_length=1, max_length=1_000)
    until: Time | None = Field(default=None, description="It ends by itself then; never without it.")


class NewBlock(BlockBody):
    """A block to be, of one user, one API key or one network."""

    model_config = example(network="203.0.113.0/24", reason="scraping", until="2026-12-31T00:00:00Z")

    user: str | None = _LABEL
    api_key: str | None = Field(default=None, max_length=64, description="The key's id.")
    network: str | None = Field(default=None, max_length=64, description="An address, or a range in CIDR form.")


class BlockView(Output):
    """A block as it is kept."""

    model_config = example(
        id="0f8fad5b-d9cb-469f-a165-70867728950e",
        user=None,
        api_key=None,
        network="203.0.113.0/24",
        reason="scraping",
        until="2026-12-31T00:00:00Z",
        version=1,
        created_at="2026-01-31T12:00:00Z",
        created_by="token:ci",
    )

    id: str
    user: str | None
    api_key: str | None
    network: str | None
    reason: str | None
    until: datetime | None
    version: int
    created_at: datetime
    created_by: str


class BlockPage(Output):
    """Blocks by id."""

    items: list[BlockView]
    next: str | None
