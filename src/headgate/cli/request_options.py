"""The options that say what a request is: for verbs that decide one, or explain one."""

from typing import Annotated, TypeAlias

import typer

from headgate.cli.options import Text
from headgate.core.meter import check_cost
from headgate.errors import InvalidRequest

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
        attributes[name] = value
    return attributes


def cost_of(text: str | None) -> int | None:
    """A cost as a number that rules can take."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):  # noqa: PLR2004 (digits; the bound is check_cost's)
        msg = f"--cost is {text!r}; write a whole number"
        raise InvalidRequest(msg)
    return check_cost(int(text))
