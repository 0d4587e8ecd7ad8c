"""`headgate blocks`: users, keys and networks that are blocked."""

from typing import Annotated, Any

import typer

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Limit, Text, Token, Url, moment_of
from headgate.cli.output import moment, print_applied, print_done, print_json, print_more, print_rows


def list_blocks(limit: Limit = 50, url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """List who is blocked, why, and until when."""
    with admin(url, token) as client:
        blocks, more = client.some(at("blocks"), limit)
    if as_json:
        print_json(blocks)
        return
    headings = ("block", "who", "reason", "until (UTC)", "by")
    print_rows(headings, [_row(block) for block in blocks], whole=["block"], below=["block"])
    if more:
        print_more(limit)


def add(
    user: Annotated[Text, typer.Option(help="The user to block.")] = None,
    api_key: Annotated[Text, typer.Option(help="The id of the API key to block.")] = None,
    network: Annotated[Text, typer.Option(help="The address or network to block, as in 192.0.2.0/24.")] = None,
    reason: Annotated[Text, typer.Option(help="What the caller is told.")] = None,
    until: Annotated[
        Text, typer.Option(metavar="WHEN", help="A time, or a span from now such as 1h; for good unless told.")
    ] = None,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Block one user, API key or network."""
    members = {
        "user": user,
        "api_key": api_key,
        "network": network,
        "reason": reason,
        "until": moment_of(until, "--until"),
    }
    with admin(url, token) as client:
        made = client.post(at("blocks"), {name: value for name, value in members.items() if value is not None})
    if as_json:
        print_json(made)
    else:
        print_done("blocked", f"{_whom(made)} {block_end(made)} (block {made['id']})")
        print_applied(client.applied)


def remove(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="The block's id.", show_default=False)],
    url: Url = None,
    token: Token = None,
) -> None:
    """End a block now."""
    with admin(url, token) as client:
        client.delete(at("blocks", block))
    print_done("removed", f"block {block}")
    print_applied(client.applied)


def _row(block: dict[str, Any]) -> tuple[str, ...]:
    return (
        block["id"],
        _whom(block),
        block["reason"] or "",
        moment(block["until"]) or "for good",
        block["created_by"],
    )


def _whom(block: dict[str, Any]) -> str:
    if block["user"] is not None:
        return f"user {block['user']}"
    return f"key {block['api_key']}" if block["api_key"] is not None else str(block["network"])


def block_end(block: dict[str, Any]) -> str:
    """Until when it holds, as in a sentence."""
    return f"until {moment(block['until'])}" if block["until"] else "for good"
