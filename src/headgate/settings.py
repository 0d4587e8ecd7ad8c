"""Settings: environment variables named ``HEADGATE_…``, read once, here and nowhere else.

    $ HEADGATE_RULES_FILE=rules.yaml HEADGATE_PORT=8090 headgate serve

An empty variable is the same as none. A setting that can hold a secret may also be given as
the name of a file that holds it, with ``_FILE`` after its name (``HEADGATE_REDIS_URL_FILE``).
"""

from __future__ import annotations

import os
from dataclasses import Field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import InvalidSettings, short_repr
from headgate.setting_fields import DEFAULT_DATA_DIR, Settings
from headgate.setting_values import TextFromFile

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "COMPLETION",
    "DEFAULT_DATA_DIR",
    "PREFIX",
    "Settings",
    "apart_from_settings",
    "for_child",
    "from_environment",
    "given_settings",
    "option_of",
    "unknown_variables",
    "variable_of",
    "variables",
    "web_concurrency",
    "with_options",
    "words_to_complete",
]

PREFIX: Final = "HEADGATE_"
COMPLETION: Final = "_HEADGATE_COMPLETE"
"""Set by a shell that wants the command that is being typed to be completed."""
_FROM_FILE: Final = "_FILE"
_OPTIONS: Final = {"rules_file": "rules", "database_url": "database"}
"""Options that are called otherwise than their settings."""


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Read all settings, or raise `InvalidSettings` naming the variable and what to write in it."""
    environ = os.environ if environ is None else environ
    given: dict[str, Any] = {}
    for each in fields(Settings):
        text = _given(each, environ)
        if text:
            given[each.name] = _read(each, text, _variable(each))
    return Settings(**given)


def given_settings(environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """The names of those settings that the environment says something about."""
    environ = os.environ if environ is None else environ
    names = [(each, _variable(each)) for each in fields(Settings)]
    return frozenset(
        each.name
        for each, name in names
        if environ.get(name, "").strip() or (each.metadata["secret"] and environ.get(name + _FROM_FILE, "").strip())
    )


def variables() -> dict[str, str]:
    """The variables of the environment that are settings, or look like one."""
    return {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}


def for_child(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process: this one's, with some settings changed."""
    return dict(os.environ) | {PREFIX + name.upper(): text for name, text in changes.items()}


def apart_from_settings(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process that has these settings and no others."""
    others = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    return others | {PREFIX + name.upper(): text for name, text in changes.items()}


def with_options(settings: Settings, options: Mapping[str, str | None]) -> Settings:
    """These settings, with what was given on the command line in place of what it replaces."""
    given = {name: text for name, text in options.items() if text is not None}
    known = {each.name: each for each in fields(Settings)}
    changed: dict[str, Any] = {name: _read(known[name], text, option_of(name)) for name, text in given.items()}
    return replace(settings, **changed)


def option_of(name: str) -> str:
    """What the option is called that replaces a setting."""
    return f"--{_OPTIONS.get(name, name).replace('_', '-')}"


def variable_of(name: str) -> str:
    """What the variable of a setting is called."""
    return PREFIX + name.upper()


def _read(each: Field[Any], text: str, source: str) -> object:
    """One setting from its text; `source` is what the message calls it."""
    try:
        return each.metadata["read"](text)
    except ValueError as error:
        may_be_shown = not each.metadata["secret"] and "@" not in text  # as between a password and a host
        wrong = f"is {short_repr(text)}" if may_be_shown else "is malformed"
        msg = f"{source} {wrong}; write {error}"
        raise InvalidSettings(msg) from None


def web_concurrency(environ: Mapping[str, str] | None = None) -> int:
    """How many processes the web server was told to run by the variables that such servers read; 1 if by none."""
    environ = os.environ if environ is None else environ
    texts = [environ.get(name, "").strip() for name in ("WEB_CONCURRENCY", "GRANIAN_WORKERS")]
    return max(
        (int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < len("10000")), default=1
    )


def words_to_complete(environ: Mapping[str, str] | None = None) -> list[str] | None:
    """The words of a command that a shell wants to be completed, without the program; None if no shell does."""
    environ = os.environ if environ is None else environ
    if COMPLETION not in environ:
        return None
    return (environ.get("COMP_WORDS") or environ.get("_TYPER_COMPLETE_ARGS") or "").split()[1:]


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable that looks like a setting and is none."""
    environ = os.environ if environ is None else environ
    known = [each.name.upper() for each in fields(Settings)]
    known += [each.name.upper() + _FROM_FILE for each in fields(Settings) if each.metadata["secret"]]
    sentences = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in known:
            close = get_close_matches(name.removeprefix(PREFIX), known, 1)
            hint = f"; did you mean {PREFIX}{close[0]}?" if close else ""
            sentences.append(f"{name} is not a setting and is ignored{hint}")
    return sentences


def _variable(each: Field[Any]) -> str:
    return variable_of(each.name)


def _given(each: Field[Any], environ: Mapping[str, str]) -> str:
    """The text of one setting, from its variable or from the file that its `_FILE` variable names."""
    name = _variable(each)
    text = environ.get(name, "").strip()
    path = environ.get(name + _FROM_FILE, "").strip() if each.metadata["secret"] else ""
    if not path:
        return text
    if text:
        msg = f"{name} and {name}{_FROM_FILE} are both set; keep one of them"
        raise InvalidSettings(msg)
    try:
        found = TextFromFile.read(Path(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        msg = f"{name}{_FROM_FILE} names {short_repr(path)}, which cannot be read: {reason}; write the name of a file"
        raise InvalidSettings(msg) from error
    if not found:  # without its token a service would answer everyone
        msg = f"{name}{_FROM_FILE} names {short_repr(path)}, which is empty; write the value into the file"
        raise InvalidSettings(msg)
    return found


def complete(settings: Settings) -> Settings:
    """Settings with default addresses: without a rules file there is a database, by default an embedded one."""
    database = settings.database_url or (None if settings.rules_file else "embedded://")
    is_embedded = database is not None and database.startswith("embedded:")
    store = settings.redis_url or ("embedded://" if is_embedded else "memory://")
    return replace(settings, database_url=database, redis_url=store)


def child_environment(chosen: Settings) -> dict[str, str]:
    """The environment of a process that reads what this one has stored: this one's, with where the data is."""
    inherited = {name: value for name, value in os.environ.items() if name != "HEADGATE_DATABASE_URL_FILE"}
    where = {"HEADGATE_DATA_DIR": str(chosen.data_dir), "HEADGATE_DATABASE_URL": chosen.database_url or ""}
    return inherited | where
