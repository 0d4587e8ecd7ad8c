"""A request on the command line: its options, its JSON, and the service that decides it."""

import json
from typing import Annotated, Any, Final, TypeAlias

import typer

from headgate.cli.exchange import call_http
from headgate.cli.options import Text
from headgate.core.meter import check_cost
from headgate.core.request import Request
from headgate.core.units import MAX_AMOUNT
from headgate.errors import HeadgateError, InvalidRequest

User: TypeAlias = Annotated[Text, typer.Option("--user", help="Who asks.")]
Tenant: TypeAlias = Annotated[Text, typer.Option("--tenant", help="The tenant that the user belongs to.")]
ApiKey: TypeAlias = Annotated[Text, typer.Option("--api-key", help="The API key that is used.")]
Ip: TypeAlias = Annotated[Text, typer.Option("--ip", help="The caller's address.")]
Tier: TypeAlias = Annotated[Text, typer.Option("--tier", help="The tier the user is on.")]
Method: TypeAlias = Annotated[Text, typer.Option("--method", help="The HTTP method.")]
Path: TypeAlias = Annotated[Text, typer.Option("--path", help="The path of the request.")]
Cost: TypeAlias = Annotated[
    Text, typer.Option("--cost", metavar="NUMBER", help="What it costs, in place of the rules' price lists.")
]
Attributes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="NAME=VALUE", help="Anything else that rules look at. Can be repeated."),
]


def attributes_of(pairs: list[str] | None) -> dict[str, str]:
    """``region=eu`` and so on as a request has them."""
    attributes = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            msg = f"--attribute is {pair!r}; write NAME=VALUE, for example region=eu"
            raise InvalidRequest(msg)
        if name in attributes:
            msg = f"--attribute {name!r} appears twice; a request has one value of each"
            raise InvalidRequest(msg)
        attributes[name] = value
    return attributes


def cost_of(text: str | None) -> int | None:
    """A cost as a number that rules can take."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):  # noqa: PLR2004 (digits; the bound is check_cost's)
        msg = f"--cost is {text!r}; write a whole number from 0 to {MAX_AMOUNT}"
        raise InvalidRequest(msg)
    return check_cost(int(text))


_SECONDS: Final = 5.0


def check_members(request: Request, cost: int | None) -> dict[str, Any]:
    """The body of a check: everything that is known."""
    # Whether a record could be read is for the service to say.
    members = {**request._asdict(), "cost": cost, "attributes": dict(request.attributes) or None, "assumed": None}
    return {name: value for name, value in members.items() if value is not None}


def ask(url: str, verb: str, request: Request, cost: int | None, token: str | None = None) -> dict[str, Any]:
    """The verdict of the service at `url`, as it answers it, or `HeadgateError` saying why there is none."""
    body = json.dumps(check_members(request, cost)).encode()
    hint = "start one with 'headgate serve', name another with --url, or decide here with --rules FILE"
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    status, text, _ = call_http(url, "POST", f"/v1/{verb}", body, headers, seconds=_SECONDS, hint=hint)
    try:
        verdict = json.loads(text)
    except ValueError:
        verdict = None
    if isinstance(verdict, dict) and isinstance(verdict.get("allowed"), bool):
        return verdict
    reason = verdict.get("message") if isinstance(verdict, dict) else "that is not a verdict of headgate"
    msg = f"{url} answered {status}: {reason}"
    raise HeadgateError(msg)
