"""`headgate processes`: who decides by this database, and which rules and blocks each process runs on."""

from typing import Any

from headgate.cli.admin_client import admin, at
from headgate.cli.options import Json, Token, Url
from headgate.cli.output import moment, print_json, print_rows


def processes(url: Url = None, token: Token = None, *, as_json: Json = False) -> None:
    """List the processes that have reported in the last 10 seconds, and what they run on."""
    with admin(url, token) as client:
        found = client.get(at("processes"))["items"]
    if as_json:
        print_json(found)
        return
    headings = ("process", "role", "rules", "from", "blocks", "following", "started (UTC)")
    print_rows(headings, [_row(process) for process in found], whole=["process"], numbers=["rules", "blocks"])


def _row(process: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{process['host']}:{process['pid']}",
        process["role"],
        str(process["rules"]),
        process["rules_from"],
        str(process["blocks"]),
        process["following"],
        moment(process["started"]),
    )
