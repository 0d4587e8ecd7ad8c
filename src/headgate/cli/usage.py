"""`headgate usage`: what was used each day, exported for billing, and reconciled."""

import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Limit, Text, Token, Url
from headgate.cli.output import complain, counted, print_json, print_more, print_note, print_rows
from headgate.cli.output_file import Force, already_there
from headgate.controlplane.usage_export import Format, Subject
from headgate.errors import InvalidRequest, short_repr

DIFFERENT = 2
_PAGE = 1_000
_First: TypeAlias = Annotated[Text, typer.Option("--from", metavar="DAY", help="The first day, as in 2030-01-31.")]
_Last: TypeAlias = Annotated[Text, typer.Option("--to", metavar="DAY", help="The last day; today unless told.")]
_Whose: TypeAlias = Annotated[Text, typer.Option(help="Only of this user.")]


def usage(
    context: typer.Context,
    user: _Whose = None,
    first: _First = None,
    last: _Last = None,
    limit: Limit = 50,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show what was used on each day, by user and rule."""
    if context.invoked_subcommand is not None:
        return
    with admin(url, token) as client:
        found, more = client.some(at("usage"), limit, user=user, from_=first, to=last)
    if as_json:
        print_json(found)
        return
    numbers = ("requests", "denied", "cost")
    rows = [
        (each["day"], each["user"], each["rule"] or "all", *(f"{each[name]:,}" for name in numbers)) for each in found
    ]
    print_rows(("day", "user", "rule", *numbers), rows, numbers=numbers)
    if more:
        print_more(limit)


def export(
    form: Annotated[Format, typer.Option("--format", help="How it is written.")] = Format.CSV,
    first: _First = None,
    last: _Last = None,
    user: _Whose = None,
    of: Annotated[Subject, typer.Option(help="Whose: users by rule, or API keys.")] = Subject.USERS,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to; standard output unless told.")
    ] = None,
    url: Url = None,
    token: Token = None,
    *,
    force: Force = False,
) -> None:
    """Write what was used for a billing system: a line for each day, user and rule, or for each day and API key."""
    if of is Subject.KEYS and user is not None:
        msg = "--user has no effect with '--of keys'; leave it out"
        raise InvalidRequest(msg)
    path, narrowed = (at("usage", "keys"), {}) if of is Subject.KEYS else (at("usage"), {"user": user})
    with admin(url, token) as client:
        after, lines = None, 0
        try:
            # A folder is not a file to write over: opened as one, it says what is wrong.
            mode = "w" if force or (out is not None and out.is_dir()) else "x"
            into = sys.stdout if out is None else out.open(mode, encoding="utf-8", newline="")
        except FileExistsError as error:
            raise InvalidRequest(already_there(out)) from error
        except OSError as error:
            msg = f"{short_repr(str(out))} cannot be written: {error.strerror}"
            raise InvalidRequest(msg) from None
        try:
            into.write(form.heading(of))
            while True:
                page = client.get(path, **narrowed, from_=first, to=last, limit=_PAGE, after=after)
                into.write(form.lines(page["items"], of))
                lines += len(page["items"])
                after = page["next"]
                if after is None:
                    break
        finally:
            if out is not None:
                into.close()
    if out is not None:
        print_note(f"{counted(lines, 'line')} in {out}")


def reconcile(
    first: _First = None,
    last: _Last = None,
    user: Annotated[Text, typer.Option(help="Also compare this user's usage of today with the counters.")] = None,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> int:
    """Compare usage with the metrics, and a user's with the counters. Exit code 2 if they differ."""
    with admin(url, token, decides=user is not None) as client:
        found = client.get(at("usage", "reconciliation"), from_=first, to=last, user=user)["items"]
    different = [each for each in found if each["difference"]]
    if as_json:
        print_json(found)
    else:
        headings = ("day", "of", "rule", "what", "usage", "against", "found", "difference")
        print_rows(headings, [_row(each) for each in found], numbers=["usage", "found", "difference"])
        if user is not None and not any(each["against"] == "counter" for each in found):
            print_note("no rule counts this user by days in a fixed window, so there is no counter to compare with")
    if different and not as_json:
        complain(f"usage differs in {len(different)} of {counted(len(found), 'comparison')}")
    return DIFFERENT if different else 0


def _row(each: dict[str, Any]) -> tuple[str | Styled, ...]:
    difference = Styled(f"{each['difference']:+,}", "red") if each["difference"] else Styled("none", "green")
    return (
        each["day"],
        each["user"] or "all users",
        each["rule"] or "all",
        each["what"],
        f"{each['usage']:,}",
        each["against"],
        f"{each['found']:,}",
        difference,
    )
