"""`headgate check` and `headgate peek`: one decision, by a running service or by rules in a file."""

from typing import Annotated, Any, TypeAlias

import typer

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
    ask,
    attributes_of,
    cost_of,
)
from headgate.cli.options import Text, settings
from headgate.cli.output import print_json
from headgate.cli.verdict_table import print_verdict
from headgate.core.request import Request
from headgate.errors import InvalidSettings
from headgate.sync import Limiter

DENIED = 2

_Url: TypeAlias = Annotated[
    Text,
    typer.Option(
        "--url", help="The service to ask; http://127.0.0.1:8080 unless told.", rich_help_panel="Which service"
    ),
]
_Rules: TypeAlias = Annotated[
    Text,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Decide here, by this file, on new counters.",
        rich_help_panel="Which service",
    ),
]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="The verdict as JSON, for programs.")]


def check(
    user: User = None,
    tenant: Tenant = None,
    api_key: ApiKey = None,
    ip: Ip = None,
    tier: Tier = None,
    method: Method = None,
    path: Path = None,
    cost: Cost = None,
    attribute: Attributes = None,
    url: _Url = None,
    rules: _Rules = None,
    *,
    as_json: _Json = False,
) -> int:
    """Decide a request, and count it if it may pass. Exit code 0 is allowed, 2 denied, 1 no answer."""
    request = Request(user, tenant, api_key, ip, tier, method, path, attributes_of(attribute))
    return _answer("check", request, cost_of(cost), rules, url, as_json=as_json)


def peek(
    user: User = None,
    tenant: Tenant = None,
    api_key: ApiKey = None,
    ip: Ip = None,
    tier: Tier = None,
    method: Method = None,
    path: Path = None,
    cost: Cost = None,
    attribute: Attributes = None,
    url: _Url = None,
    rules: _Rules = None,
    *,
    as_json: _Json = False,
) -> int:
    """Say what `check` would answer, and count nothing. Exit code 0 is allowed, 2 denied, 1 no answer."""
    request = Request(user, tenant, api_key, ip, tier, method, path, attributes_of(attribute))
    return _answer("peek", request, cost_of(cost), rules, url, as_json=as_json)


def _answer(verb: str, request: Request, cost: int | None, rules: str | None, url: str | None, *, as_json: bool) -> int:
    chosen = settings(url=url)
    if rules and url:
        msg = "--url has no effect beside --rules, which decides here; give one of them"
        raise InvalidSettings(msg)
    if rules:
        verdict = _decide_here(verb, request, cost, rules)
    else:
        verdict = ask(chosen.url, verb, request, cost, chosen.service_token)
    if as_json:
        print_json(verdict)
    else:
        print_verdict(verdict)
    return 0 if verdict["allowed"] else DENIED


def _decide_here(verb: str, request: Request, cost: int | None, rules: str) -> dict[str, Any]:
    with Limiter.open("memory://", rules) as limiter:
        verdict = limiter.check(request, cost) if verb == "check" else limiter.peek(request, cost=cost)
        return verdict.as_dict() if verdict.allowed else verdict.problem() | verdict.as_dict()
