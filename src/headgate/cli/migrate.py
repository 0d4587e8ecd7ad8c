"""`headgate migrate`: what another limiter's decorators or configuration become here."""

from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.options import Json
from headgate.cli.output import complain, counted, print_json
from headgate.cli.output_file import Force, write_file
from headgate.errors import InvalidFields, InvalidRequest
from headgate.migrate.detect import SOURCES, move


def migrate(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help=f"The program or configuration to move, of {', '.join(SOURCES[:-1])} or {SOURCES[-1]}.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the result to a file.", show_default=False)
    ] = None,
    *,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Show what decorators of slowapi or flask-limiter, or the configuration of a gateway, become, and what differs."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        msg = f"{file} cannot be read: {why}"
        raise InvalidRequest(msg) from error
    try:
        moved = move(text)
    except InvalidFields as error:
        complain(f"{file} cannot be migrated", *map(str, error.problems))
        return 1
    if out is not None:
        write_file(out, moved.text, force=force)
    if as_json:
        print_json(moved.as_dict())
        return 0
    if out is None:
        typer.echo(moved.text, nl=not moved.text.endswith("\n"))
    notes = [str(note) for note in moved.notes]
    complain(f"{file} was read as {moved.source}; {counted(len(notes), 'difference')}", *notes)
    return 0
