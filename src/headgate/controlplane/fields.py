"""What the forms of tiers, users, keys, blocks and tokens have in common."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headgate.core.api_key import looks_like_api_key, looks_like_token, prefix_of
from headgate.core.parsing.fields import name_problem, unusable
from headgate.errors import InvalidFields, NotFound, Problem, Stale, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from headgate.core.parsing.fields import Fields
    from headgate.ports import Statements

MAX_ID_LENGTH: Final = 255
_LIST_SHOWN: Final = 10
_INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)  # RFC 3339; Python alone would also take week dates and times without a zone


def refuse(problems: Sequence[Problem]) -> None:
    """Raise everything that is wrong, if anything is."""
    if problems:
        raise InvalidFields(problems)


def found(thing: str, row: Mapping[str, Any] | None, version: int | None = None) -> Mapping[str, Any]:
    """The row of a thing. `NotFound` if there is none, `Stale` if it is not at the version that the caller has read."""
    if row is None:
        msg = f"there is no {thing}"
        raise NotFound(msg)
    if version is not None and row["version"] != version:
        msg = f"{thing} has changed since it was read (it is at version {row['version']} now); read it again"
        raise Stale(msg)
    return row


def storable(text: str) -> str | None:
    """A text that can be looked for; None for one that nothing can be called."""
    return None if unusable(text) else text


def id_of(text: str) -> UUID | None:
    """An id that headgate has given out; None if this cannot be one."""
    try:
        return UUID(text)
    except ValueError:
        return None


def shown_id(text: str) -> str:
    """An id as it stands in a message; of a secret that was taken for one, only what may be shown."""
    is_secret = looks_like_api_key(text) or looks_like_token(text)
    return f"{prefix_of(text)}… (a secret; name it by its id)" if is_secret else short_repr(text)


def id_before(after: str | None) -> UUID:
    """The id that a page of a list begins after."""
    before = UUID(int=0) if after is None else id_of(after)
    if before is None:
        raise InvalidFields(
            [
                Problem(
                    ("after",),
                    f"{short_repr(after)} is not a cursor of this list; send `next` of the previous page, or omit it",
                )
            ]
        )
    return before


def at_most(longest: int) -> Callable[[str], str | None]:
    """Checks that a text is not longer."""
    return lambda text: None if len(text) <= longest else f"at most {longest} characters, not {len(text)}"


def stays(fields: Fields, name: str, value: object) -> None:
    """A field that may be given again, but not changed."""
    if fields.has(name) and fields.data[name] != value:
        fields.problem(f"it is {short_repr(value)} and cannot be changed", name)


def tier(fields: Fields, tiers: Collection[str]) -> str | None:
    """The name of a tier that is there."""
    name = fields.text("tier", None, name_problem)
    if name is not None and name not in tiers:
        some = ", ".join(sorted(tiers)[:_LIST_SHOWN])
        fields.problem(
            f"there is no tier {short_repr(name)}; " + (f"there are {some}" if some else "create it first"), "tier"
        )
    return name


async def tier_names(statements: Statements) -> Collection[str]:
    """All tiers there are."""
    return frozenset(row["name"] for row in await statements.rows("tiers.names"))


async def time_now(statements: Statements) -> datetime:
    """The time by the database's clock, which all processes share."""
    row = await statements.row("time.now")
    assert row is not None  # noqa: S101 (a SELECT without FROM)
    now: datetime = row["now"]
    return now


def instant_ahead(fields: Fields, name: str, now: datetime, kept: datetime | None = None) -> datetime | None:
    """A time that is still to come, or that is `kept` already."""
    text = fields.text(name, None)
    if text is None:
        return None
    try:
        if not _INSTANT.fullmatch(text):
            raise ValueError  # noqa: TRY301 (one sentence for all that is no time)
        instant = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        fields.problem(f"{short_repr(text)} is not a time; write for example 2030-12-31T23:59:59Z", name)
        return None
    if instant <= now and instant != kept:
        fields.problem(f"{short_repr(text)} has passed (it is {now:%Y-%m-%dT%H:%M:%SZ} now)", name)
    return instant


def as_json(value: object) -> Any:  # noqa: ANN401 (whatever JSON can say)
    """A value of a record, as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return {name: list(texts) for name, texts in value.items()} if isinstance(value, dict) else value


def limits_of(stored: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Limits by name, out of the database."""
    return {name: tuple(texts) for name, texts in sorted(stored.items())}
