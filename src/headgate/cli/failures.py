"""What people are told of a command that failed, and its exit code."""

from __future__ import annotations

from typing import Final

import typer

from headgate.cli.extras import missing_package
from headgate.cli.output import complain, counted, give_up_output
from headgate.errors import HeadgateError, InvalidFields, InvalidRules

FAILED: Final = 1
INTERRUPTED: Final = 130
# Typer exports this class in no version, and keeps it in another place since it no longer needs click.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]


def report(error: BaseException) -> int:
    """Say what went wrong: a sentence on standard error, never a traceback. Returns the exit code."""
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        give_up_output()
    elif isinstance(error, InvalidRules):
        complain(f"the rules are refused, for {counted(len(error.lines), 'problem')}:", *error.lines)
    elif isinstance(error, InvalidFields):
        first, *more = map(str, error.problems)
        if more:
            complain(f"the input is refused, for {counted(len(error.problems), 'problem')}:", first, *more)
        else:
            complain(first)
    elif isinstance(error, HeadgateError):
        complain(str(error))
    elif isinstance(error, _UsageError):
        sentence = error.format_message()  # type: ignore[attr-defined] # see above
        # Without arguments typer has shown the help already, and has nothing to add.
        if sentence:
            complain(f"{sentence} (see headgate --help)")
    else:  # a bug, or a missing extra; even then people get a sentence
        complain(_unexpected(error))
    return FAILED


def _unexpected(error: BaseException) -> str:
    sentence = missing_package(error, "this command") if isinstance(error, ModuleNotFoundError) else None
    return sentence or f"this is a bug in headgate: {type(error).__name__}: {error}"
