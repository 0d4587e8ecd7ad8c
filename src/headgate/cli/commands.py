"""All verbs together, and how they end.

A verb returns its exit code: 0 is fine, 1 is failed, 2 is what `check` and `peek` say of a
denial and `db status` of migrations to come. So usage errors, which are 2 elsewhere, are 1 here.
"""

import sys
from typing import Annotated

import typer

from headgate import __version__
from headgate.cli import check, db, rules, serve
from headgate.cli.output import complain, counted, give_up_output
from headgate.errors import HeadgateError, InvalidRules

FAILED = 1
INTERRUPTED = 130
# Typer exports this class in no version, and keeps it in another place since it no longer needs click.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="headgate",
    help="A rate limiter: a service that decides, and commands to ask it and to look after its rules.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("check")(check.check)
app.command("peek")(check.peek)
rules_app = typer.Typer(name="rules", help="Look after rules.", no_args_is_help=True)
rules_app.command("validate")(rules.validate)
app.add_typer(rules_app)
db_app = typer.Typer(name="db", help="Look after the database.", no_args_is_help=True)
db_app.command("migrate")(db.migrate)
db_app.command("status")(db.status)
app.add_typer(db_app)


def _show_version(value: bool) -> None:  # noqa: FBT001 (as typer calls it)
    if value:
        typer.echo(f"headgate {__version__}")
        raise typer.Exit


@app.callback()
def _headgate(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Options that stand before any verb."""


def run(arguments: list[str]) -> int:
    """Carry out a command and return its exit code. Whatever happens, people get a sentence and no traceback."""
    try:
        code = int(app(arguments, standalone_mode=False) or 0)
        sys.stdout.flush()
        return code  # noqa: TRY300 (flushing can fail too)
    except UsageError as error:
        sentence = error.format_message()  # type: ignore[attr-defined] # see above
        # Without arguments typer has shown the help already, and has nothing to add.
        if sentence:
            complain(f"{sentence} (see headgate --help)")
    except InvalidRules as error:
        complain(f"the rules are refused, for {counted(len(error.lines), 'problem')}:", *error.lines)
    except HeadgateError as error:
        complain(str(error))
    except BrokenPipeError:
        give_up_output()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 (a bug; even then people get a sentence)
        complain(f"this is a bug in headgate: {type(error).__name__}: {error}")
    return FAILED
