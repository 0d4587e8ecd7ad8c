"""Options that several verbs share, what their texts mean, and the settings that they override."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Annotated, Any, Final, TypeAlias

import typer

from headgate.adapters.clock import wall_clock
from headgate.cli.output import complain
from headgate.core.units import SECOND, parse_duration
from headgate.errors import InvalidLimit, InvalidRequest, InvalidSettings, short_repr
from headgate.setting_effects import idle_settings
from headgate.settings import (
    Settings,
    from_environment,
    given_settings,
    option_of,
    unknown_variables,
    variable_of,
    with_options,
)

Text: TypeAlias = str | None
_SERVICE: Final = "Which service"
Url: TypeAlias = Annotated[
    Text, typer.Option("--url", help="Its admin API; HEADGATE_ADMIN_URL unless told.", rich_help_panel=_SERVICE)
]
Token: TypeAlias = Annotated[
    Text, typer.Option("--token", help="A token of it; HEADGATE_ADMIN_TOKEN unless told.", rich_help_panel=_SERVICE)
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="The answer as JSON, for programs.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print the secret and nothing else.")]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", min=1, metavar="NUMBER", help="How many to show, at most.")]
OwnLimits: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=LIMIT", help="A limit, as in search=100/hour. Can be repeated."),
]

_SPAN: Final = re.compile(r"\s*\d+\s*[a-zA-Z]+\s*")
"""What is meant to be a span, whether it is one or not."""
_EXAMPLE_TIME: Final = "2030-01-31T12:00:00Z"


def limits_of(pairs: Iterable[str] | None, option: str = "--limit") -> dict[str, list[str]]:
    """``search=10/second`` and ``search=100/hour`` as the API takes them: a list of limits for each name."""
    found: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, equals, limit = pair.partition("=")
        if not equals or not name or not limit:
            msg = f"{option} is {short_repr(pair)}; write NAME=LIMIT, for example search=100/hour"
            raise InvalidRequest(msg)
        found.setdefault(name, []).append(limit)
    return found


def moment_of(text: str | None, option: str, *, ahead: bool = True) -> str | None:
    """A time as the API takes it, from a time or from a span that begins now (``30d``), or ends now if not `ahead`."""
    if text is None:
        return None
    try:
        span = parse_duration(text)
    except InvalidLimit as error:
        if _SPAN.fullmatch(text):
            msg = f"{option}: {error}"
            raise InvalidRequest(msg) from None
        return _in_utc(_time(text, option))
    return _in_utc(datetime.fromtimestamp((wall_clock() + (span if ahead else -span)) // SECOND, UTC))


def _time(text: str, option: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        msg = f"{option} is {short_repr(text)}; write a time such as {_EXAMPLE_TIME}, or a span such as 30d"
        raise InvalidRequest(msg) from None
    # A time without a zone is in UTC, as all times are that commands print.
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _in_utc(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def in_words(limits: dict[str, Any]) -> str:
    """Limits by name, for people: ``search 10/second, 100/hour; api unlimited``."""
    return "; ".join(f"{name} {', '.join(among)}" for name, among in limits.items())


def settings(**options: str | None) -> Settings:
    """All settings; a variable that is none gets a warning."""
    for sentence in unknown_variables():
        complain(sentence)
    return with_options(from_environment(), options)


def refuse_idle_settings(chosen: Settings, options: Mapping[str, str | None]) -> list[str]:
    """A sentence for each setting without effect on a service; `InvalidSettings` if one of them must not be ignored."""
    by_option = {name for name, text in options.items() if text is not None}
    sentences: dict[bool, list[str]] = {True: [], False: []}
    for name, reason, is_refused in idle_settings(
        chosen, given_settings() | by_option, has_grpc=find_spec("hpack") is not None
    ):
        source = option_of(name) if name in by_option else variable_of(name)
        sentences[is_refused].append(f"{source} has no effect: {reason}")
    if sentences[True]:
        raise InvalidSettings("; ".join(sentences[True]))
    return sentences[False]
