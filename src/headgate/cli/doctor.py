"""`headgate doctor`: what is wrong with an installation, or will be one day, and what to do about each thing."""

import asyncio
from typing import Annotated, Final

import typer
from rich.text import Text

from headgate.cli.diagnosis.catalog import Report
from headgate.cli.diagnosis.examination import examine
from headgate.cli.diagnosis.issue import Severity
from headgate.cli.options import Json
from headgate.cli.output import console, counted, print_json
from headgate.cli.tables import printable
from headgate.settings import variables

FAILED = 1
WARNED = 2
_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_LABEL: Final = 9


def doctor(
    rules: Annotated[str | None, typer.Option(metavar="FILE", help="The rules file, as for serve.")] = None,
    database: Annotated[str | None, typer.Option(metavar="URL", help="The database, as for serve.")] = None,
    *,
    as_json: Json = False,
) -> int:
    """Look for what is wrong: settings, packages, ports, files, Redis, PostgreSQL, rules. Each finding has its remedy.

    It looks at what a service with this environment would use, and changes nothing: it starts no server,
    migrates nothing, and writes nothing. Exit code 0: nothing is wrong, 2: there are warnings, 1: there are errors.
    """
    report = asyncio.run(examine(variables(), {"rules_file": rules, "database_url": database}))
    if as_json:
        print_json(
            {
                "errors": _many(report, Severity.ERROR),
                "warnings": _many(report, Severity.WARNING),
                "notes": _many(report, Severity.NOTE),
                "findings": [issue.as_dict() for issue in report.issues],
                "well": [{"subject": subject, "message": sentence} for subject, sentence in report.passed],
            }
        )
    else:
        _print(report)
    if report.has(Severity.ERROR):
        return FAILED
    return WARNED if report.has(Severity.WARNING) else 0


def _many(report: Report, severity: Severity) -> int:
    return sum(issue.severity is severity for issue in report.issues)


def _print(report: Report) -> None:
    out = console()
    for subject, sentence in report.passed:
        _line("well", "green", Text.assemble((f"{subject}: ", "bold"), printable(sentence)))
    for severity in Severity:
        for issue in report.issues:
            if issue.severity is severity:
                _line(
                    severity.value,
                    _STYLES[severity],
                    Text.assemble((f"{issue.subject}: ", "bold"), printable(issue.sentence)),
                )
                _line("", "", Text.assemble(("→ ", "dim"), issue.remedy, (f"  [{issue.code}]", "dim")))
    out.print()
    counts = [(severity, _many(report, severity)) for severity in Severity]
    found = ", ".join(counted(many, severity.value) for severity, many in counts if many)
    out.print(Text(f"{found} found." if found else "Nothing is wrong.", "bold"))


def _line(label: str, style: str, text: Text) -> None:
    """A label, and a text beside it that keeps its own column when it is broken."""
    out = console()
    if not out.is_terminal:
        out.print(Text.assemble(f"{label:<{_LABEL}}", text), soft_wrap=True)
        return
    lines = text.wrap(out, max(1, out.width - _LABEL))
    for number, line in enumerate(lines):
        out.print(Text.assemble((f"{label if number == 0 else '':<{_LABEL}}", style), line), soft_wrap=True)
