"""The settings of a command: the environment, and its options on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.cli.output import complain
from headgate.settings import from_environment, unknown_variables, with_options

if TYPE_CHECKING:
    from headgate.settings import Settings


def settings(**options: str | None) -> Settings:
    """All settings; a variable that is none gets a warning."""
    for sentence in unknown_variables():
        complain(sentence)
    return with_options(from_environment(), options)
