"""Rules that decide nothing, refuse everything, or ask for what the settings do not give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.adapters import zones
from headgate.adapters.rules_file import RulesFile
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule_reach import MAX_PAIRS, never_admitting, reach_of
from headgate.errors import HeadgateError, InvalidRules
from headgate.setting_effects import idle_rule_fields

if TYPE_CHECKING:
    from headgate.cli.diagnosis.catalog import Report
    from headgate.core.rule import RuleSet
    from headgate.settings import Settings

_SUBJECT: Final = "rules"
_MAX_NAMED: Final = 20
"""How many rules with one problem are listed."""


def file_rules(chosen: Settings, report: Report) -> RuleSet | None:
    """The rules of the file, if there is one that can be used."""
    if chosen.rules_file is None:
        return None
    try:
        return RulesFile(chosen.rules_file).load()
    except InvalidRules as error:
        for line in error.lines[:_MAX_NAMED]:
            report.add(_SUBJECT, "rules-unreadable", line)
        return None


def stored_rules(data: Any, report: Report) -> RuleSet | None:  # noqa: ANN401 (JSON)
    """The rules that the database has, from their data; None if there are none that can be used."""
    if data is None:
        return None
    try:
        return parse_rule_set(data, zones.zone, stored=True)
    except HeadgateError as error:
        report.add(_SUBJECT, "rules-unreadable", f"the active rules: {error}")
        return None


def check_rules(rule_set: RuleSet, source: str, chosen: Settings, report: Report, max_pairs: int = MAX_PAIRS) -> None:
    """Look at all rules together; `source` says where they are from."""
    before = len(report.issues)
    reach = reach_of(rule_set, max_pairs)
    for each in reach.unreached[:_MAX_NAMED]:
        report.add(_SUBJECT, "rule-never-matches" if each.by is None else "rule-hidden", f"{each.rule}: {each.reason}")
    if len(reach.unreached) > _MAX_NAMED:
        report.add(_SUBJECT, "rule-hidden", f"{len(reach.unreached) - _MAX_NAMED} more rules decide nothing either")
    if not reach.is_complete:
        sentence = f"of {len(rule_set.rules):,} rules only the first were compared with all others"
        report.add(_SUBJECT, "rules-not-all-compared", sentence)
    for name, reason in list(never_admitting(rule_set))[:_MAX_NAMED]:
        report.add(_SUBJECT, "rule-never-admits", f"{name}: {reason}")
    for sentence in idle_rule_fields(rule_set, chosen):
        report.add(_SUBJECT, "rule-field-without-effect", sentence)
    if len(report.issues) == before:
        number = len(rule_set.rules)
        report.well(_SUBJECT, f"{number} rule{'' if number == 1 else 's'} from the {source}, each of some effect")
