"""`headgate rules validate`, `plan`, `apply` and `sync`: rules files, checked and compared with the database."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import typer
from rich.text import Text as Styled

from headgate.adapters.rules_file import RulesFiles, owner_of
from headgate.cli.admin_client import AdminClient, admin, at
from headgate.cli.options import Json, Text, Token, Url
from headgate.cli.output import (
    complain,
    console,
    counted,
    print_applied,
    print_done,
    print_json,
    print_note,
    print_rows,
)
from headgate.core.rule import Rule, RuleSet
from headgate.errors import InvalidFields, InvalidRules
from headgate.facade import Limiter

_MAX_ROWS = 100
INVALID = 1


def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="YAML files with rules.", show_default=False)],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON, for programs.")] = False,
) -> int:
    """Check rules files as the service would. Exit code 0 is fine, 1 is not."""
    reports = [_report(file) for file in files]
    if as_json:
        print_json([report for report, _ in reports])
    else:
        for report, rule_set in reports:
            _print_report(report, rule_set)
    return 0 if all(report["valid"] for report, _ in reports) else INVALID


def _report(file: str) -> tuple[dict[str, Any], RuleSet]:
    """What was found in a file, for programs, and the rules if they are good."""
    problems: list[dict[str, Any]] = []
    rule_set = RuleSet()
    try:
        rule_set = Limiter.open("memory://", file).snapshots.current.rule_set
    except InvalidRules as error:
        for text, problem in zip(error.lines, error.problems, strict=True):
            line = text.removeprefix(f"{file}:").partition(":")[0]
            number = int(line) if line.isdigit() else None
            problems.append({"line": number, "field": problem.field, "message": problem.message, "text": text})
    return {"file": file, "valid": not problems, "rules": len(rule_set.rules), "problems": problems}, rule_set


def _print_report(report: dict[str, Any], rule_set: RuleSet) -> None:
    problems = report["problems"]
    if problems:
        sentence = f"{report['file']} is refused, for {counted(len(problems), 'problem')}:"
        complain(sentence, *(problem["text"] for problem in problems))
        return
    out = console()
    tiers = f", tiers {', '.join(rule_set.tiers)}" if rule_set.tiers else ""
    out.print(
        Styled.assemble(("fine", "bold green"), f"  {report['file']}: {counted(report['rules'], 'rule')}{tiers}"),
        soft_wrap=True,
    )
    headings = ("rule", "concerns", "per", "limits", "algorithm", "action")
    styles = {True: "", False: "dim"}
    rows = [[Styled(word, styles[rule.enabled]) for word in _rule_row(rule)] for rule in rule_set.rules[:_MAX_ROWS]]
    if rows:
        print_rows(headings, rows, whole=["algorithm", "action"], long=["concerns", "limits"])
    if len(rule_set.rules) > _MAX_ROWS:
        out.print(f"and {len(rule_set.rules) - _MAX_ROWS} more")


def _rule_row(rule: Rule) -> tuple[str, ...]:
    match = rule.match
    conditions = [
        *match.methods,
        *match.endpoints,
        *(f"tier {tier}" for tier in match.tiers),
        *map(str, match.ip_ranges),
        *(f"{name}={value}" for name, value in match.attributes),
    ]
    limits = f"tier:{rule.tier_limit}" if rule.tier_limit else ", ".join(map(str, rule.limits))
    per, algorithm = ("", "") if rule.is_gate else (", ".join(rule.per), rule.algorithm.value)
    action = rule.action.value if rule.enabled else f"{rule.action.value} (off)"
    return rule.name, " ".join(conditions) or "everything", per, limits, algorithm, action


DIFFERENT = 2
DECLINED = 1
_STYLES = {"+": "green", "-": "red", "~": "yellow"}

_Files: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="YAML files that are one rule set.", show_default=False)
]
_Owner: TypeAlias = Annotated[
    Text, typer.Option("--owner", help="Whose rules these are; else the path of the file, or of the files' folder.")
]
_TakeOver: TypeAlias = Annotated[
    bool, typer.Option("--take-over", help="Also change rules that another owner has, and own them.")
]
_DeleteAtMost: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--delete-at-most",
        min=0,
        metavar="NUMBER",
        help="Delete so many rules and tiers, and refuse to delete more; else a tenth of them, and never all.",
        show_default=False,
    ),
]
_Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask before it is done.")]


def plan(
    files: _Files,
    owner: _Owner = None,
    url: Url = None,
    token: Token = None,
    *,
    delete: Annotated[bool, typer.Option("--delete", help="What 'sync' would do, in place of 'apply'.")] = False,
    take_over: _TakeOver = False,
    as_json: Json = False,
) -> int:
    """Show what files would change. Exit code 0 is nothing, 2 something, 1 refused."""
    desired = _DesiredRules(files, owner, take_over=take_over)
    with admin(url, token) as client:
        difference = desired.ask(client, "plan", delete=delete)
    if as_json:
        print_json(difference)
    else:
        _print_difference(difference)
        if needed := difference.get("delete_at_most"):
            print_note(f"'sync' asks for --delete-at-most {needed} to delete so much")
    return DIFFERENT if difference["lines"] else 0


def apply(
    files: _Files,
    owner: _Owner = None,
    url: Url = None,
    token: Token = None,
    *,
    take_over: _TakeOver = False,
    yes: _Yes = False,
    as_json: Json = False,
) -> int:
    """Add and change what the files say; delete nothing. Shows the difference first; on a terminal, asks to confirm."""
    return _change("apply", _DesiredRules(files, owner, take_over=take_over), url, token, yes=yes, as_json=as_json)


def sync(
    files: _Files,
    owner: _Owner = None,
    url: Url = None,
    token: Token = None,
    delete_at_most: _DeleteAtMost = None,
    *,
    take_over: _TakeOver = False,
    yes: _Yes = False,
    as_json: Json = False,
) -> int:
    """Make the rules what files say, and delete the others, except those of other owners. Else as 'apply'."""
    desired = _DesiredRules(files, owner, take_over=take_over)
    return _change("sync", desired, url, token, yes=yes, as_json=as_json, delete_at_most=delete_at_most)


class _DesiredRules:
    """What files want the rules to be."""

    def __init__(self, files: Sequence[str], owner: str | None, *, take_over: bool) -> None:
        self._files = RulesFiles(files)
        self._query = {"owner": owner or owner_of(files), "take_over": take_over or None}

    def ask(self, client: AdminClient, verb: str, **query: object) -> dict[str, Any]:
        """The difference it makes; what is wrong with it is told with the files' lines."""
        try:
            answer: dict[str, Any] = client.post(at("ruleset", verb), self._files.data, **self._query, **query)
        except InvalidFields as error:
            locations = [self._files.location(problem.path) for problem in error.problems]
            lines = [
                f"{location}: {problem}" if location else str(problem)
                for location, problem in zip(locations, error.problems, strict=True)
            ]
            raise InvalidRules(error.problems, lines) from error
        return answer


def _change(
    verb: str,
    desired: _DesiredRules,
    url: str | None,
    token: str | None,
    *,
    yes: bool,
    as_json: bool,
    delete_at_most: int | None = None,
) -> int:
    query = {} if delete_at_most is None else {"delete_at_most": delete_at_most}
    with admin(url, token) as client:
        if not as_json:
            difference = desired.ask(client, "plan", delete=verb == "sync")
            _print_difference(difference)
            if not difference["lines"]:
                return 0
            # A script has decided already; a person may have second thoughts. What will be refused needs no consent.
            refused = difference.get("delete_at_most") and delete_at_most is None
            if not (yes or refused) and sys.stdin.isatty() and not typer.confirm("Apply these changes?"):
                print_note("nothing was changed")
                return DECLINED
        done = desired.ask(client, verb, **query)
    if as_json:
        print_json(done)
    else:
        print_done("done", counted(len(done["lines"]), "change"))
        print_applied(client.applied)
    return 0


def _print_difference(difference: Mapping[str, Any]) -> None:
    out = console()
    for line in difference["lines"]:
        out.print(Styled(line, _STYLES.get(line[:1], "")), soft_wrap=True)
    rest = f"{counted(difference['unchanged'], 'rule')} as before"
    if difference["lines"]:
        out.print(Styled(f"{counted(len(difference['lines']), 'difference')}; {rest}", "dim"))
    else:
        out.print(Styled.assemble(("the same", "bold green"), f"  {rest}"))
