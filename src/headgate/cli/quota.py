"""`headgate quota`: what a user has left."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.blocks import block_end
from headgate.cli.options import Json, Token, Url
from headgate.cli.output import counted, print_done, print_json, print_line, print_rows
from headgate.cli.tables import printable
from headgate.cli.verdict_table import span

_BAR = 10
_BAR_HEADING = " "
_TIGHT = 0.2


def quota(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's id.", show_default=False)],
    url: Url = None,
    token: Token = None,
    *,
    reset: Annotated[bool, typer.Option("--reset", help="Forget what the user has used.")] = False,
    as_json: Json = False,
) -> None:
    """Show every limit that can apply to a user: what is used, what is left, and when all of it is available again."""
    with admin(url, token, decides=True) as client:
        path = at("users", user, "quota")
        answer = client.post(f"{path}/reset") if reset else client.get(path)
        blocks = [] if reset or as_json else client.some(at("blocks"), 50, subject=user)[0]
    if as_json:
        print_json(answer)
    elif reset:
        print_done("reset", f"user {user}: {counted(answer['counters'], 'counter')} forgotten; shared ones stay")
    else:
        _print(answer, next((each for each in blocks if each["user"] == user), None))


def _print(answer: dict[str, Any], block: dict[str, Any] | None) -> None:
    tier = f", tier {answer['tier']}" if answer["tier"] else ""
    print_line(Styled.assemble((printable(answer["user"]), "bold"), printable(tier)))
    if block is not None:
        reason = f": {block['reason']}" if block["reason"] else ""
        print_line(Styled.assemble(("blocked", "red"), printable(f" {block_end(block)}{reason}")))
    print_limits(answer["items"])


def print_limits(entries: Sequence[dict[str, Any]]) -> None:
    """A table of a user's limits as they stand."""
    headings = ("rule", "where", "limit", "used", "left", "full in", _BAR_HEADING, "")
    numbers = ["limit", "used", "left", "full in"]
    rows = [_row(entry) for entry in entries]
    whole = [_BAR_HEADING, ""]
    print_rows(headings, rows, numbers=numbers, whole=whole, long=["where"], below=[""], spare=[_BAR_HEADING])


def _row(entry: dict[str, Any]) -> tuple[str | Styled, ...]:
    known = entry["remaining"] is not None
    return (
        entry["rule"],
        _where(entry),
        entry["limit"] or "",
        f"{entry['used']}" if known else "",
        f"{entry['remaining']}" if known else "",
        span(entry["reset_after"]) if entry["used"] else "",
        _bar(entry),
        _remark(entry),
    )


def _where(entry: dict[str, Any]) -> str:
    conditions = [
        *entry["methods"],
        *entry["endpoints"],
        *entry["ip_ranges"],
        *(f"{name}={value}" for name, value in entry["attributes"].items()),
    ]
    return " ".join(conditions) or "everywhere"


def _bar(entry: dict[str, Any]) -> Styled:
    """How much is used, where there is a counter."""
    if entry["limit"] is None or entry["depends_on"] or entry["remaining"] is None:
        return Styled()
    left = entry["remaining"] / (entry["used"] + entry["remaining"])
    filled = round(_BAR * (1 - left))
    style = "red" if not entry["remaining"] else "yellow" if left < _TIGHT else "green"
    return Styled.assemble(("█" * filled, style), ("░" * (_BAR - filled), "dim"))


def _remark(entry: dict[str, Any]) -> Styled:
    """Whose counter it is, and whether it refuses; why there is none."""
    if entry["limit"] is None:
        return Styled("not limited here", "green") if entry["action"] == "allow" else Styled("blocked here", "red")
    if entry["depends_on"]:
        return Styled(f"for each {' and '.join(entry['depends_on'])}", "dim")
    remarks = [*(["shared"] if entry["shared"] else []), *(["watched"] if entry["action"] == "log" else [])]
    return Styled("" if entry["remaining"] is None else ", ".join(remarks), "dim")
