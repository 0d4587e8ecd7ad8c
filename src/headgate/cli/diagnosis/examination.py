"""The whole examination, in the order in which it is read."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from headgate.adapters.clock import wall_clock
from headgate.cli.diagnosis.catalog import Report
from headgate.cli.diagnosis.database_checks import DatabaseFacts, check_database
from headgate.cli.diagnosis.machine_checks import check_files, check_packages, check_ports
from headgate.cli.diagnosis.peer_checks import check_peers
from headgate.cli.diagnosis.redis_checks import check_redis
from headgate.cli.diagnosis.rule_checks import check_rules, file_rules, stored_rules
from headgate.cli.diagnosis.setting_checks import check_settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.core.rule import RuleSet
    from headgate.core.units import Micros


async def examine(
    environ: Mapping[str, str], options: Mapping[str, str | None], clock: Callable[[], Micros] = wall_clock
) -> Report:
    """Everything there is to say of a service with this environment and these options. Changes nothing."""
    report = Report()
    chosen = read_settings(environ, options, report)
    check_settings(chosen, environ, options, report)
    check_packages(chosen, report)
    check_ports(chosen, report)
    check_files(chosen, environ, report)
    stored = DatabaseFacts()
    has_driver = chosen.database_url is None or find_spec("asyncpg") is not None
    if has_driver:
        stored = await check_database(chosen, clock, report)
    rule_sets = _rule_sets(stored_rules(stored.rules, report), file_rules(chosen, report))
    replicas = max((rule.wait_replicas for rules in rule_sets.values() for rule in rules.rules), default=0)
    await check_redis(chosen, replicas, clock, report)
    await check_peers(chosen, report)
    if stored.is_readable and stored.rules is None and chosen.rules_file is None:
        report.add("rules", "rules-none", "the database has none")
    for source, rule_set in rule_sets.items():
        check_rules(rule_set, source, chosen, report)
    return report


def _rule_sets(stored: RuleSet | None, in_file: RuleSet | None) -> dict[str, RuleSet]:
    """The rules that are looked at, by where they are from. Those of a file are in the database, too."""
    if stored is not None:
        return {"database": stored}
    return {} if in_file is None else {"file": in_file}
