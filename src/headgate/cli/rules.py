"""`headgate rules validate`: everything that is wrong with rules files, or what is in them."""

from typing import Annotated, Any

import typer
from rich.text import Text

from headgate.cli.output import complain, console, counted, print_json, print_rows
from headgate.core.rule import Rule, RuleSet
from headgate.errors import InvalidRules
from headgate.facade import Limiter

_MOST_ROWS = 100
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
            _print(report, rule_set)
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


def _print(report: dict[str, Any], rule_set: RuleSet) -> None:
    problems = report["problems"]
    if problems:
        sentence = f"{report['file']} is refused, for {counted(len(problems), 'problem')}:"
        complain(sentence, *(problem["text"] for problem in problems))
        return
    out = console()
    tiers = f", tiers {', '.join(rule_set.tiers)}" if rule_set.tiers else ""
    out.print(
        Text.assemble(("fine", "bold green"), f"  {report['file']}: {counted(report['rules'], 'rule')}{tiers}"),
        soft_wrap=True,
    )
    headings = ("rule", "concerns", "per", "limits", "algorithm", "action")
    styles = {True: "", False: "dim"}
    rows = [[Text(word, styles[rule.enabled]) for word in _row(rule)] for rule in rule_set.rules[:_MOST_ROWS]]
    if rows:
        print_rows(headings, rows, whole=["algorithm", "action"], long=["concerns", "limits"])
    if len(rule_set.rules) > _MOST_ROWS:
        out.print(f"and {len(rule_set.rules) - _MOST_ROWS} more")


def _row(rule: Rule) -> tuple[str, ...]:
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
