"""`headgate rules dump`, `history`, `rollback`, `rename`, `enable`, `disable`, `import` and `schema`."""

import json
from typing import Annotated, Any, TypeAlias

import typer

from headgate.adapters.rules_file import RulesFile
from headgate.adapters.yaml_text import write_rule_set
from headgate.cli.activity import difference
from headgate.cli.admin_client import admin, admin_settings, at
from headgate.cli.options import Json, Limit, Text, Token, Url
from headgate.cli.output import (
    complain,
    counted,
    moment,
    print_applied,
    print_done,
    print_json,
    print_more,
    print_rows,
    write_text,
)
from headgate.cli.output_file import Force, write_file
from headgate.controlplane.imports import IMPORTERS
from headgate.controlplane.rule_schema import rule_schema
from headgate.errors import InvalidRequest, short_repr

_Name: TypeAlias = Annotated[str, typer.Argument(metavar="RULE", help="The rule's name.", show_default=False)]
_Into: TypeAlias = Annotated[
    Text, typer.Option("--output", "-o", metavar="FILE", help="Write it there, not to standard output.")
]


def dump(
    into: _Into = None, url: Url = None, token: Token = None, *, force: Force = False, as_json: Json = False
) -> None:
    """Write the active rules as a rules file."""
    with admin(url, token) as client:
        rule_set = client.get(at("ruleset"))
    _write(rule_set, into, force=force, as_json=as_json)


def history(
    name: Annotated[Text, typer.Argument(metavar="RULE", help="One rule; all of them without it.")] = None,
    limit: Limit = 20,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the versions of a rule, or every rule set that was active, the newest first."""
    with admin(url, token) as client:
        if name is None:
            found, more = client.some(at("snapshots"), limit)
        else:
            every = client.get(at("rules", name, "history"))["items"]
            found, more = every[:limit], len(every) > limit
    if as_json:
        print_json(found)
        return
    if name is None:
        rows = [(str(each["number"]), moment(each["at"]), each["who"], str(each["rules"])) for each in found]
        print_rows(("snapshot", "at (UTC)", "who", "rules"), rows, numbers=["snapshot", "rules"])
    else:
        _print_versions(found)
    if more:
        print_more(limit)


def rollback(
    name: Annotated[Text, typer.Argument(metavar="RULE", help="The rule to take back.", show_default=False)] = None,
    change: Annotated[
        int | None, typer.Argument(metavar="CHANGE", help="The change to go back to.", show_default=False)
    ] = None,
    snapshot: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Take all rules and tiers back to this snapshot.")
    ] = None,
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Make one rule what it was ('history RULE' has the numbers), or all of them ('history')."""
    if (snapshot is None) == (name is None or change is None) or (snapshot is not None and name is not None):
        msg = "write 'headgate rules rollback RULE CHANGE', or 'headgate rules rollback --snapshot NUMBER'"
        raise InvalidRequest(msg)
    with admin(url, token) as client:
        if snapshot is None:
            done = client.post(at("rules", name, "rollback"), {"change": change})
        else:
            done = client.post(at("snapshots", snapshot, "rollback"))
    if as_json:
        print_json(done)
    elif snapshot is None:
        print_done("back", f"rule {name} is what it was at change {change}")
        _print_warning(done)
        print_applied(client.applied)
    else:
        for line in done["lines"]:
            typer.echo(line)
        print_done("back", f"rules and tiers are those of snapshot {snapshot}: {counted(len(done['lines']), 'change')}")
        if done["set_back"]:
            files = ", ".join(sorted({each["owner"] for each in done["set_back"]}))
            complain(f"files own some of these rules, and set them back when they are applied again: {files}")
        print_applied(client.applied)


def rename(
    name: _Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.", show_default=False)],
    url: Url = None,
    token: Token = None,
    *,
    as_json: Json = False,
) -> None:
    """Give a rule another name; counters, limits of users and keys, history and metrics stay with it."""
    with admin(url, token) as client:
        made = client.post(at("rules", name, "rename"), {"name": new})
    if as_json:
        print_json(made)
        return
    print_done("renamed", f"rule {name} is {new} (id {made['id']})")
    _print_warning(made)
    print_applied(client.applied)


def enable(name: _Name, url: Url = None, token: Token = None) -> None:
    """Switch a rule on."""
    with admin(url, token) as client:
        made = client.post(at("rules", name, "enable"))
    print_done("enabled", f"rule {name}")
    _print_warning(made)
    print_applied(client.applied)


def disable(name: _Name, url: Url = None, token: Token = None) -> None:
    """Switch a rule off; it stays where it is."""
    with admin(url, token) as client:
        made = client.post(at("rules", name, "disable"))
    print_done("disabled", f"rule {name}")
    _print_warning(made)
    print_applied(client.applied)


def import_rules(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON of another limiter.", show_default=False)],
    form: Annotated[str, typer.Option(help="envoy (envoyproxy/ratelimit) or tiers (limits by tier).")] = "envoy",
    into: _Into = None,
    url: Url = None,
    token: Token = None,
    *,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a rules file from another limiter's configuration, and say what could not be carried over."""
    data = RulesFile(file).document().data
    if admin_settings(url, token).admin_url is not None:
        with admin(url, token) as client:
            imported = client.post(at("ruleset", "import"), data, form=form)
        rule_set, notes = imported["rule_set"], imported["notes"]
    elif form in IMPORTERS:
        made, notes = IMPORTERS[form](data)
        rule_set = json.loads(json.dumps(made))  # plain texts, as from a service
    else:
        msg = f"--form is one of {', '.join(IMPORTERS)}, not {short_repr(form)}"
        raise InvalidRequest(msg)
    _write(rule_set, into, force=force, as_json=as_json)
    if notes:
        complain(f"{file} has settings that were not carried over:", *notes)


def schema(into: _Into = None, url: Url = None, token: Token = None, *, force: Force = False) -> None:
    """Write the JSON Schema of rules files, for editors: of this version, or of the service at --url."""
    found = rule_schema()
    if admin_settings(url, token).admin_url is not None:
        with admin(url, token) as client:
            found = client.get(at("ruleset", "schema"))
    _write(found, into, force=force, as_json=True)


def _write(data: dict[str, Any], into: str | None, *, force: bool, as_json: bool) -> None:
    text = json.dumps(data, indent=2) + "\n" if as_json else write_rule_set(data)
    if into is None:
        write_text(text)
        return
    write_file(into, text, force=force)
    rules = f": {counted(len(data['rules']), 'rule')}" if "rules" in data else ""
    print_done("written", f"{into}{rules}")


def _print_warning(rule: dict[str, Any]) -> None:
    """What will undo the change, if something will."""
    if rule.get("warning"):
        complain(rule["warning"])


def _print_versions(versions: list[dict[str, Any]]) -> None:
    rows = []
    for version, older in zip(versions, [*versions[1:], {"data": None}], strict=True):
        data = version["data"]
        done = "deleted" if data is None else "changed" if older["data"] else "created"
        rows.append(
            (str(version["change"]), moment(version["at"]), version["who"], done, difference(older["data"], data))
        )
    print_rows(("change", "at (UTC)", "who", "done", "difference"), rows, numbers=["change"], long=["difference"])
