"""`headgate check` and `headgate peek`: one decision, by a running service or by rules in a file."""

from typing import Annotated, Any, TypeAlias

import typer

from headgate.cli.asking import ask
from headgate.cli.environment import settings
from headgate.cli.output import print_json
from headgate.cli.verdict_table import print_verdict
from headgate.core.meter import check_cost
from headgate.core.request import Request
from headgate.errors import InvalidRequest
from headgate.sync import Limiter

DENIED = 2

_Text: TypeAlias = str | None
_User: TypeAlias = Annotated[_Text, typer.Option("--user", help="Who asks.")]
_Tenant: TypeAlias = Annotated[_Text, typer.Option("--tenant", help="The tenant that the user belongs to.")]
_ApiKey: TypeAlias = Annotated[_Text, typer.Option("--api-key", help="The API key that is used.")]
_Ip: TypeAlias = Annotated[_Text, typer.Option("--ip", help="The caller's address.")]
_Tier: TypeAlias = Annotated[_Text, typer.Option("--tier", help="The tier the user is on.")]
_Method: TypeAlias = Annotated[_Text, typer.Option("--method", help="The HTTP method.")]
_Path: TypeAlias = Annotated[_Text, typer.Option("--path", help="The path of the request.")]
_Cost: TypeAlias = Annotated[
    _Text, typer.Option("--cost", metavar="NUMBER", help="What it costs, in place of the rules' price lists.")
]
_Attributes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="NAME=VALUE", help="Anything else that rules look at. Can be repeated."),
]
_Url: TypeAlias = Annotated[
    _Text, typer.Option("--url", help="The service to ask; http://127.0.0.1:8080 unless told.", rich_help_panel="Whom")
]
_Rules: TypeAlias = Annotated[
    _Text,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Decide here, by this file, on counters nobody has used.",
        rich_help_panel="Whom",
    ),
]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="The verdict as JSON, for programs.")]


def check(
    user: _User = None,
    tenant: _Tenant = None,
    api_key: _ApiKey = None,
    ip: _Ip = None,
    tier: _Tier = None,
    method: _Method = None,
    path: _Path = None,
    cost: _Cost = None,
    attribute: _Attributes = None,
    url: _Url = None,
    rules: _Rules = None,
    *,
    as_json: _Json = False,
) -> int:
    """Decide a request, and count it if it may pass. Exit code 0 is allowed, 2 denied, 1 no answer."""
    request = Request(user, tenant, api_key, ip, tier, method, path, _attributes(attribute))
    return _answer("check", request, _number(cost), rules, url, as_json=as_json)


def peek(
    user: _User = None,
    tenant: _Tenant = None,
    api_key: _ApiKey = None,
    ip: _Ip = None,
    tier: _Tier = None,
    method: _Method = None,
    path: _Path = None,
    cost: _Cost = None,
    attribute: _Attributes = None,
    url: _Url = None,
    rules: _Rules = None,
    *,
    as_json: _Json = False,
) -> int:
    """Say what `check` would answer, and count nothing. Exit code 0 is allowed, 2 denied, 1 no answer."""
    request = Request(user, tenant, api_key, ip, tier, method, path, _attributes(attribute))
    return _answer("peek", request, _number(cost), rules, url, as_json=as_json)


def _answer(verb: str, request: Request, cost: int | None, rules: str | None, url: str | None, *, as_json: bool) -> int:
    chosen = settings(url=url)
    verdict = _decide_here(verb, request, cost, rules) if rules else ask(chosen.url, verb, request, cost)
    if as_json:
        print_json(verdict)
    else:
        print_verdict(verdict)
    return 0 if verdict["allowed"] else DENIED


def _decide_here(verb: str, request: Request, cost: int | None, rules: str) -> dict[str, Any]:
    with Limiter.open("memory://", rules) as limiter:
        verdict = limiter.check(request, cost) if verb == "check" else limiter.peek(request, cost=cost)
        return verdict.as_dict() if verdict.allowed else verdict.problem() | verdict.as_dict()


def _attributes(pairs: list[str] | None) -> dict[str, str]:
    attributes = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            msg = f"--attribute is {pair!r}; write NAME=VALUE, for example region=eu"
            raise InvalidRequest(msg)
        attributes[name] = value
    return attributes


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):  # noqa: PLR2004 (digits; the bound is check_cost's)
        msg = f"--cost is {text!r}; write a whole number"
        raise InvalidRequest(msg)
    return check_cost(int(text))
