"""`headgate hot`: the counters that are asked for most."""

from typing import Annotated, Any

import typer
from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Token, Url
from headgate.cli.output import print_json, print_line, print_rows

Limit = Annotated[int, typer.Option("--limit", help="How many at most.", min=1, max=50)]


def hot(limit: Limit = 20, url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """List the hottest counters of the last minute: rate, share, mode and server."""
    with admin(url, token) as client:
        answer = client.get(at("hot"), limit=limit)
    if as_json:
        print_json(answer)
        return
    if not answer["watched"]:
        print_line(Styled("The counters are in memory, and not watched."))
        return
    headings = ("counter", "rule", "units/s", "share", "mode", "server")
    rows = [_row(counter) for counter in answer["counters"]]
    print_rows(headings, rows, whole=["counter"], numbers=["units/s", "share"])


def _row(counter: dict[str, Any]) -> tuple[str, ...]:
    return (
        counter["key"],
        counter["rule"] or "",
        f"{counter['rate']:,.1f}",
        f"{counter['share']:.1%}",
        counter["mode"],
        counter["server"],
    )
