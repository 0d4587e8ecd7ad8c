"""`headgate explain`: which rules apply to a request, which do not, and why."""

from datetime import UTC, datetime
from typing import Any

from rich.text import Text as Styled

from headgate.cli.admin_client import admin, at
from headgate.cli.check_request import (
    ApiKey,
    Attributes,
    Cost,
    Ip,
    Method,
    Path,
    Tenant,
    Tier,
    User,
    attributes_of,
    check_members,
    cost_of,
)
from headgate.cli.options import Json, Token, Url
from headgate.cli.output import console, counted, print_json, print_line, table
from headgate.cli.tables import printable
from headgate.cli.verdict_table import headline, span
from headgate.core.request import Request

DENIED = 2


def explain(
    user: User = None,
    tenant: Tenant = None,
    api_key: ApiKey = None,
    ip: Ip = None,
    tier: Tier = None,
    method: Method = None,
    path: Path = None,
    cost: Cost = None,
    attribute: Attributes = None,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> int:
    """Say which rules apply to a request and why the others do not. Counts nothing.

    Exit code 0 is allowed, 2 denied, 1 no answer.
    """
    request = Request(user, tenant, api_key, ip, tier, method, path, attributes_of(attribute))
    with admin(url, token, decides=True) as client:
        answer = client.post(at("explain"), check_members(request, cost_of(cost)))
    if as_json:
        print_json(answer)
    else:
        print_explanation(answer)
    return 0 if answer["verdict"]["allowed"] else DENIED


def print_explanation(answer: dict[str, Any]) -> None:
    """Print an explanation in the shape of `headgate.dataplane.inspection.explain`."""
    out = console()
    print_line(headline(answer["verdict"]))
    print_line(Styled(f"for {printable(_request(answer['request']))}, by snapshot {answer['snapshot']}", "dim"))
    if others := answer["request"].get("also_read_as"):  # services of earlier versions send none
        print_line(Styled(f"other servers read the path as {printable(' or '.join(others))}", "dim"))
    for note in answer.get("notes", ()):  # services of earlier versions send none
        print_line(Styled(f"note: {note}", "yellow"))
    block = answer["block"]
    if block is not None:
        until = f" until {datetime.fromtimestamp(block['until'], UTC):%Y-%m-%d %H:%M:%S}" if block["until"] else ""
        reason = f": {printable(block['reason'])}" if block["reason"] else ""
        print_line(Styled.assemble(("\nblock", "bold red"), f"  {block['id']}{until}{reason}"))
    grid = table()
    for heading in ("layer", "rule", "why"):
        grid.add_column(heading, overflow="fold")
    for index, gate in enumerate(answer["gates"]):
        grid.add_row("" if index else "gates", _mark(gate["rule"], applies=gate["decides"]), _gate(gate))
    for layer in answer["layers"]:
        grid.add_section()
        _add_layer(grid, layer)
    out.print(grid)
    if answer["left_out"]:
        out.print(Styled(f"and {counted(answer['left_out'], 'rule')} that are further off", "dim"))


def _request(request: dict[str, Any]) -> str:
    words = [request["method"], request["path"], request["ip"] and f"from {request['ip']}"]
    words += [request["tier"] and f"on tier {request['tier']}"]
    words += [f"{name}={value}" for name, value in request["attributes"].items()]
    return " ".join(word for word in words if word)


def _mark(rule: str, *, applies: bool) -> Styled:
    return Styled.assemble(("● ", "green"), (rule, "bold")) if applies else Styled(f"  {rule}", "dim")


def _gate(gate: dict[str, Any]) -> Styled:
    if gate["decides"]:
        return Styled("blocks it", "red") if gate["action"] == "block" else Styled("exempts it", "green")
    return Styled(gate["why"], "dim")


def _add_layer(grid: Any, layer: dict[str, Any]) -> None:  # noqa: ANN401 (rich's table)
    name = layer["layer"]
    for applied in (layer["winner"], layer["watched"]):
        if applied is not None:
            grid.add_row(name, _mark(applied["rule"], applies=True), _applied(applied))
            name = ""
    for lost in layer["lost"]:
        grid.add_row(name, _mark(lost["rule"], applies=False), Styled(lost["why"], "dim"))
        name = ""


def _applied(applied: dict[str, Any]) -> Styled:
    words = Styled("watched only; " if applied["action"] == "log" else "")
    if not applied["limits"]:
        words.append("unlimited", "green")
    for index, limit in enumerate(applied["limits"]):
        words.append("; " if index else "")
        words.append(limit["limit"], "bold")
        words.append(f", {limit['remaining']} left", None if limit["allowed"] else "red")
        if not limit["allowed"]:
            wait = limit["retry_after"]
            words.append(", never enough" if wait is None else f", enough in {span(wait)}")
        if limit["cost"] != 1:
            words.append(f", costs {limit['cost']}")
        if limit["mode"] == "leased":
            words.append(", leased now")
    if applied["origin"] != "rule":
        words.append(f" (from {applied['limits_from']})", "dim")
    for limit in applied["limits"]:
        words.append(f"\n{printable(limit['counter'])}", "dim")
    return words
