"""What `headgate serve` prints once it runs: where it listens, by which rules, and commands to try."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from headgate import __version__
from headgate.adapters.admin_token import token_file
from headgate.adapters.embedded import EmbeddedStore
from headgate.cli.output import console, counted
from headgate.core.limit import Rate
from headgate.core.rule import Action, Match
from headgate.ports import LocalStore
from headgate.wiring import layer

if TYPE_CHECKING:
    from headgate.core.rule import Rule, RuleSet
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.listening import Address
    from headgate.ports import CounterStore
    from headgate.settings import Settings
    from headgate.wiring.control import ControlPlane


class Addresses(NamedTuple):
    """Where everything listens; None for what this service does not have."""

    http: Address | None
    admin: Address | None
    grpc: Address | None

    @property
    def in_words(self) -> str:
        """Which process this is, for another one that finds it."""
        found = [address.url for address in (self.http, self.admin) if address is not None]
        return f"process {os.getpid()} at {' and '.join(found)}"


def announce(limiter: Limiter, control: ControlPlane | None, chosen: Settings, where: Addresses) -> None:
    """Say it, for a newcomer who has just started it."""
    rule_set = limiter.snapshots.current.rule_set
    out = console()

    def line(label: str, text: str) -> None:
        out.print(Text.assemble((f"  {label:<9}", "dim"), text), soft_wrap=True)

    first = where.http or where.admin
    assert first is not None  # noqa: S101 (every role listens somewhere)
    does = " listens on " if where.http is not None else " administers on "
    out.print(Text.assemble((f"headgate {__version__}", "bold"), does, (first.url, "bold cyan")))
    rules = counted(len(rule_set.rules) if limiter.snapshots.is_known else 0, "rule")
    if control is None:
        line("rules", f"{chosen.rules_file} ({rules}; changes are picked up)")
    else:
        if where.admin is not None:
            line("admin", where.admin.url)
            if chosen.admin_token is None:
                # A pipe may end in a log that many can read.
                kept = f"in {token_file(chosen.data_dir)}; 'headgate tokens create NAME' makes others"
                line("token", control.admin_token if out.is_terminal else kept)
        line("rules", f"{control.runtime.runs_on} ({rules}; changes are picked up)")
        line("database", _database(chosen))
    if where.grpc is not None:
        kind = "Envoy's rate-limit service" + ("" if chosen.tls_cert is None else ", with TLS")
        line("grpc", f"{where.grpc.url.removeprefix('http://')} ({kind})")
    line("store", f"{(chosen.redis_url or '').partition(':')[0]} ({_how_long(limiter.store)})")
    if chosen.service_token is not None and where.http is not None:
        line("access", 'only for who sends HEADGATE_SERVICE_TOKEN, as -H "X-Headgate-Token: $TOKEN"')
    out.print()
    for purpose, command in _commands(rule_set, chosen, where):
        out.print(Text(f"  # {purpose}", "dim"), soft_wrap=True)
        out.print(Text(indent(command, "  "), "green"), soft_wrap=True)
    out.print()
    for hint in hints(where):
        out.print(Text(f"  {hint}", "dim"), soft_wrap=True)
    out.print(Text("  ctrl-c stops it", "dim"))
    sys.stdout.flush()


def _commands(rule_set: RuleSet, chosen: Settings, where: Addresses) -> list[ExampleCommand]:
    """What to try on what this service has."""
    commands = [] if where.http is None else example_commands(rule_set, where.http.url)
    if where.admin is not None:
        file = shlex.quote(str(token_file(chosen.data_dir)))
        token = f"$(cat {file})" if chosen.admin_token is None else "$HEADGATE_ADMIN_TOKEN"
        quota = f"{where.admin.url.removeprefix('http://')}/v1/users/u1/quota"
        command = f'curl -s {quota} \\\n  -H "Authorization: Bearer {token}"'
        commands.append(ExampleCommand("see what a user has left, as an administrator", command))
    return commands


def hints(where: Addresses) -> list[str]:
    """Where the dashboard is, how to call the command, and how to listen elsewhere."""
    hints = [] if where.admin is None else [f"{where.admin.url} in a browser is the dashboard"]
    program = Path(sys.argv[0])
    if shutil.which("headgate") is None and program.name == "headgate":
        with suppress(ValueError):
            program = program.absolute().relative_to(Path.cwd())
        hints.append(f"in another terminal, call headgate as {program}, or after: source {program.parent}/activate")
    variables = (("PORT", where.http), ("ADMIN_PORT", where.admin), ("GRPC_PORT", where.grpc))
    names = [f"HEADGATE_{name}" for name, address in variables if address is not None]
    return [*hints, f"other ports: {', '.join(names)}"]


def _database(chosen: Settings) -> str:
    """Which database; never its address, which may hold a password."""
    kind = (chosen.database_url or "").partition(":")[0]
    return f"embedded (kept in {chosen.data_dir})" if kind == "embedded" else kind


def _how_long(store: CounterStore) -> str:
    """What becomes of the counters."""
    embedded = layer(store, EmbeddedStore)
    if embedded is not None:
        return f"counters are kept in {embedded.server.folder}"
    return "counters end with this process" if isinstance(store, LocalStore) else "counters are kept there"


_MAX_SHOWN_AMOUNT: Final = 100
"""An amount that a shell loop uses up while the operator watches."""
_VARIABLE: Final = re.compile(r"\{[^}]*\}")


class ExampleCommand(NamedTuple):
    """A command, in lines that fit a terminal, and its purpose."""

    purpose: str
    command: str


def example_commands(rule_set: RuleSet, url: str) -> list[ExampleCommand]:
    """One check that passes, checks until 429, and a look that counts nothing."""
    fitting = ((rule, _amount(rule, rule_set)) for rule in rule_set.rules if rule.enabled)
    match, amount = next(((rule.match, amount) for rule, amount in fitting if amount), (Match(), 0))
    body = shlex.quote(json.dumps(_request(match, rule_set.default_tier), separators=(",", ":")))
    check, peek = (f"{url.removeprefix('http://')}/v1/{verb} \\\n  -d {body}" for verb in ("check", "peek"))
    loop = f"for i in $(seq {(amount or 10) + 2}); do curl -s -o /dev/null -w '%{{http_code}} ' {check}; done; echo"
    return [
        ExampleCommand("ask once, and see the headers", f"curl -i -X POST {check}"),
        ExampleCommand("ask until the answer is 429" if amount else "ask a dozen times", loop),
        ExampleCommand("look without counting", f"curl -s -X POST {peek}"),
    ]


def _amount(rule: Rule, rule_set: RuleSet) -> int:
    """After how many requests the rule says no; 0 if it does not, or not soon."""
    limits = rule.limits
    if rule.tier_limit is not None:
        limits = rule_set.tiers[_tier(rule.match, rule_set.default_tier)].limits.get(rule.tier_limit, ())
    amount = min((limit.amount for limit in limits if isinstance(limit, Rate)), default=0)
    return amount if rule.action is Action.REJECT and amount <= _MAX_SHOWN_AMOUNT else 0


def _tier(match: Match, default_tier: str | None) -> str:
    return match.tiers[0] if match.tiers else default_tier or ""


def _request(match: Match, default_tier: str | None) -> dict[str, object]:
    """A request that meets all conditions."""
    request: dict[str, object] = {"user": "u1"}
    if match.ip_ranges:
        request["ip"] = str(match.ip_ranges[0][0])
    if tier := _tier(match, default_tier):
        request["tier"] = tier
    request["method"] = match.methods[0] if match.methods else "GET"
    request["path"] = _VARIABLE.sub("1", match.endpoints[0]).replace("*", "x") if match.endpoints else "/"
    if match.attributes:
        request["attributes"] = dict(match.attributes)
    return request
