"""`headgate rules plan`, `apply` and `sync`: what rules files would change, and changing it."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.text import Text as Styled

from headgate.adapters.rules_file import RulesFiles
from headgate.cli.admin_client import AdminClient, admin, at
from headgate.cli.options import Json, Text, Token, Url
from headgate.cli.output import console, counted, print_applied, print_done, print_json, print_note
from headgate.errors import InvalidFields, InvalidRules

DIFFERENT = 2
DECLINED = 1
_STYLES = {"+": "green", "-": "red", "~": "yellow"}

_Files: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="YAML files that are one rule set.", show_default=False)
]
_Owner: TypeAlias = Annotated[
    Text, typer.Option("--owner", help="Whose rules these are; the file's name, or that of the files' folder.")
]
_TakeOver: TypeAlias = Annotated[
    bool, typer.Option("--take-over", help="Also change rules that another owner has, and own them.")
]
_Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask before it is done.")]


def plan(
    files: _Files,
    owner: _Owner = None,
    url: Url = None,
    token: Token = None,
    *,
    delete: Annotated[bool, typer.Option("--delete", help="What 'sync' would do, in place of 'apply'.")] = False,
    take_over: _TakeOver = False,
    as_json: Json = False,
) -> int:
    """Show what files would change. Exit code 0 is nothing, 2 something, 1 refused."""
    wish = _Wish(files, owner, take_over=take_over)
    with admin(url, token) as client:
        difference = wish.ask(client, "plan", delete=delete)
    if as_json:
        print_json(difference)
    else:
        _print(difference)
    return DIFFERENT if difference["lines"] else 0


def apply(
    files: _Files,
    owner: _Owner = None,
    url: Url = None,
    token: Token = None,
    *,
    take_over: _TakeOver = False,
    yes: _Yes = False,
    as_json: Json = False,
) -> int:
    """Add and change what files say; delete nothing. Shows the difference first, and asks if somebody is there."""
    return _carry_out("apply", _Wish(files, owner, take_over=take_over), url, token, yes=yes, as_json=as_json)


def sync(
    files: _Files,
    owner: _Owner = None,
    url: Url = None,
    token: Token = None,
    *,
    take_over: _TakeOver = False,
    yes: _Yes = False,
    as_json: Json = False,
) -> int:
    """Make the rules what files say, and delete the others, except those of other owners. Else as 'apply'."""
    return _carry_out("sync", _Wish(files, owner, take_over=take_over), url, token, yes=yes, as_json=as_json)


class _Wish:
    """What files want the rules to be."""

    def __init__(self, files: Sequence[str], owner: str | None, *, take_over: bool) -> None:
        self._files = RulesFiles(files)
        self._query = {"owner": owner or _owner(files), "take_over": take_over or None}

    def ask(self, client: AdminClient, verb: str, **query: object) -> dict[str, Any]:
        """The difference it makes; what is wrong with it is told with the files' lines."""
        try:
            answer: dict[str, Any] = client.post(at("ruleset", verb), self._files.data, **self._query, **query)
        except InvalidFields as error:
            places = [self._files.location(problem.path) for problem in error.problems]
            lines = [
                f"{place}: {problem}" if place else str(problem)
                for place, problem in zip(places, error.problems, strict=True)
            ]
            raise InvalidRules(error.problems, lines) from error
        return answer


def _owner(files: Sequence[str]) -> str:
    """The name of the file, or of the folder that all files are in."""
    if len(files) == 1:
        return Path(files[0]).name
    return Path(os.path.commonpath([Path(file).resolve().parent for file in files])).name or "rules"


def _carry_out(verb: str, wish: _Wish, url: str | None, token: str | None, *, yes: bool, as_json: bool) -> int:
    with admin(url, token) as client:
        if not as_json:
            difference = wish.ask(client, "plan", delete=verb == "sync")
            _print(difference)
            if not difference["lines"]:
                return 0
            # A script has decided already; a person may have second thoughts.
            if not yes and sys.stdin.isatty() and not typer.confirm("Carry this out?"):
                print_note("nothing was changed")
                return DECLINED
        done = wish.ask(client, verb)
    if as_json:
        print_json(done)
    else:
        print_done("done", counted(len(done["lines"]), "change"))
        print_applied(client.applied)
    return 0


def _print(difference: Mapping[str, Any]) -> None:
    out = console()
    for line in difference["lines"]:
        out.print(Styled(line, _STYLES.get(line[:1], "")), soft_wrap=True)
    rest = f"{counted(difference['unchanged'], 'rule')} as before"
    if difference["lines"]:
        out.print(Styled(f"{counted(len(difference['lines']), 'difference')}; {rest}", "dim"))
    else:
        out.print(Styled.assemble(("the same", "bold green"), f"  {rest}"))
