"""`headgate tokens`: who may use the admin API, and for what."""

from typing import Annotated, Any

import typer
from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Quiet, Text, Token, Url, moment_of
from headgate.cli.output import moment, print_done, print_json, print_rows, print_secret, state


def list_tokens(url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """List the tokens of the admin API; of each only the first characters are known."""
    with admin(url, token) as client:
        tokens = client.get(at("tokens"))["items"]
    if as_json:
        print_json(tokens)
        return
    headings = ("token", "name", "role", "begins", "state", "last used (UTC)")
    print_rows(headings, [_row(each) for each in tokens], whole=["token", "begins"], below=["token"])


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who it is for, as in ci.", show_default=False)],
    role: Annotated[str, typer.Option(help="viewer (reads), operator (users, keys, blocks) or admin.")] = "viewer",
    expires: Annotated[Text, typer.Option(metavar="WHEN", help="A time, or a span from now such as 90d.")] = None,
    url: Url = None,
    token: Token = None,
    *,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a token for the admin API and show it, this one time."""
    members = {"name": name, "role": role, "expires_at": moment_of(expires, "--expires")}
    with admin(url, token) as client:
        made = client.post(at("tokens"), {name: value for name, value in members.items() if value is not None})
    if as_json:
        print_json(made)
        return
    if not quiet:
        record = made["token"]
        until = f" until {moment(record['expires_at'])}" if record["expires_at"] else ""
        print_done("created", f"token {record['id']} for {name}, with the role {record['role']}{until}")
    print_secret(made["secret"], alone=quiet)


def revoke(
    id_: Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id.", show_default=False)],
    url: Url = None,
    token: Token = None,
) -> None:
    """End a token, at once and for good."""
    with admin(url, token) as client:
        client.delete(at("tokens", id_))
    print_done("revoked", f"token {id_}")


def _row(token: dict[str, Any]) -> tuple[str | Styled, ...]:
    return (
        token["id"],
        token["name"],
        token["role"],
        f"{token['prefix']}…",
        state(token["state"]),
        moment(token["last_used"]),
    )
