"""API keys and tokens as they are sent and answered. A secret is shown once, when it is made."""

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field

from headgate.controlplane.access import Role
from headgate.controlplane.keys import KeyState
from headgate.edge.admin.models.shared import Input, LimitLists, NamedLimits, Output, Time, example

_LABEL: Final = Field(default=None, min_length=1, max_length=255)
_ID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"
_A_YEAR: Final = 366 * 86_400
_KEY: Final[dict[str, Any]] = {
    "id": _ID,
    "prefix": "hg_4fR7aQz",
    "name": "the app on phones",
    "user": "u1",
    "tenant": None,
    "tier": None,
    "limits": {"search": ["5/second"]},
    "expires_at": None,
    "last_used": None,
    "revoked_at": None,
    "revoked_by": None,
    "rotated_to": None,
    "version": 1,
    "created_at": "2026-01-31T12:00:00Z",
    "created_by": "token:ci",
    "state": "active",
}
_TOKEN: Final[dict[str, Any]] = {
    "id": _ID,
    "name": "ci",
    "role": "operator",
    "prefix": "hgt_4fR7aQ",
    "expires_at": None,
    "last_used": None,
    "revoked_at": None,
    "revoked_by": None,
    "created_at": "2026-01-31T12:00:00Z",
    "created_by": "token:settings",
    "state": "active",
}


class KeyBody(Input):
    """What an API key is good for."""

    model_config = example(name="the app on phones", limits={"search": "5/second"}, expires_at="2026-12-31T00:00:00Z")

    name: str | None = _LABEL
    tenant: str | None = _LABEL
    tier: str | None = _LABEL
    limits: NamedLimits | None = Field(default=None, description="Limits in place of a rule's own, by rule.")
    expires_at: Time | None = None


class NewKey(KeyBody):
    """An API key to be."""

    model_config = example(name="the app on phones", user="u1", limits={"search": "5/second"})

    user: str | None = Field(default=None, min_length=1, max_length=255, description="The owner.")


class RotationBody(Input):
    """How long the old key is good beside the new one."""

    model_config = example(overlap_seconds=3_600)

    overlap_seconds: Annotated[int, Field(ge=0, le=_A_YEAR)] = 0


class KeyView(Output):
    """An API key as it is kept; the key itself is not."""

    model_config = example(**_KEY)

    id: str
    prefix: str = Field(description="Its first characters, by which its owner recognises it.")
    name: str | None
    user: str | None
    tenant: str | None
    tier: str | None
    limits: LimitLists
    expires_at: datetime | None
    last_used: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    rotated_to: str | None = Field(description="The id of the key that takes its place.")
    version: int
    created_at: datetime
    created_by: str
    state: KeyState


class KeyPage(Output):
    """API keys by id."""

    items: list[KeyView]
    next: str | None


class Shown(Output):
    """An answer with a secret in it, which is shown once."""

    secret: str | None = Field(description="Shown only now: it is kept as a hash. Null where it was shown before.")
    shown_before: bool = Field(
        default=False, description="True in an answer that is repeated (Idempotency-Key): the secret was in the first."
    )


class NewKeyView(Shown):
    """A key, and the secret itself."""

    model_config = example(key=_KEY, secret="hg_…", shown_before=False)  # noqa: S106 (no secret)

    key: KeyView


class NewToken(Input):
    """A token to be."""

    model_config = example(name="ci", role="operator", expires_at="2026-12-31T00:00:00Z")

    name: str = Field(min_length=1, max_length=64)
    role: Annotated[Role, Field(strict=False)]
    expires_at: Time | None = None


class TokenView(Output):
    """A token as it is kept; the token itself is not."""

    model_config = example(**_TOKEN)

    id: str
    name: str
    role: Role
    prefix: str
    expires_at: datetime | None
    last_used: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    created_at: datetime
    created_by: str
    state: KeyState


class TokenPage(Output):
    """All tokens, the newest first."""

    items: list[TokenView]
    next: str | None


class NewTokenView(Shown):
    """A token, and the secret itself."""

    model_config = example(token=_TOKEN, secret="hgt_…", shown_before=False)  # noqa: S106 (no secret)

    token: TokenView


class CallerView(Output):
    """Who the API takes you for."""

    model_config = example(name="token:ci", role="operator")

    name: str = Field(description="As it stands in change records.")
    role: Role
