"""What `headgate serve` says once it is there: where, by which rules, and what to try."""

from __future__ import annotations

import sys
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from headgate import __version__
from headgate.adapters.embedded import EmbeddedStore
from headgate.cli.output import console, counted
from headgate.cli.trial import trials
from headgate.ports import LocalStore
from headgate.wiring import layer

if TYPE_CHECKING:
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.listening import Address
    from headgate.ports import CounterStore
    from headgate.settings import Settings
    from headgate.wiring.control import ControlPlane


class Places(NamedTuple):
    """Where everything listens."""

    address: Address
    admin: Address | None
    grpc: Address | None


def announce(limiter: Limiter, control: ControlPlane | None, chosen: Settings, where: Places) -> None:
    """Say it, for a newcomer who has just started it."""
    address, admin_address, grpc_address = where
    rule_set = limiter.snapshots.current.rule_set
    out = console()

    def line(label: str, text: str) -> None:
        out.print(Text.assemble((f"  {label:<9}", "dim"), text), soft_wrap=True)

    out.print(Text.assemble((f"headgate {__version__}", "bold"), " listens on ", (address.url, "bold cyan")))
    rules = counted(len(rule_set.rules) if limiter.snapshots.is_known else 0, "rule")
    if control is None or admin_address is None:
        line("rules", f"{chosen.rules_file} ({rules}; changes are picked up)")
    else:
        line("admin", admin_address.url)
        if chosen.admin_token is None:
            line("token", control.admin_token)
        line("rules", f"{control.runtime.runs_on} ({rules}; changes are picked up)")
        line("database", _database(chosen))
    if grpc_address is not None:
        kind = "Envoy's rate-limit service" + ("" if chosen.tls_cert is None else ", with TLS")
        line("grpc", f"{grpc_address.url.removeprefix('http://')} ({kind})")
    line("store", f"{(chosen.redis_url or '').partition(':')[0]} ({_how_long(limiter.store)})")
    if chosen.service_token is not None:
        line("access", 'only for who sends HEADGATE_SERVICE_TOKEN, as -H "X-Headgate-Token: $TOKEN"')
    out.print()
    for purpose, command in trials(rule_set, address.url):
        out.print(Text(f"  # {purpose}", "dim"), soft_wrap=True)
        out.print(Text(indent(command, "  "), "green"), soft_wrap=True)
    if control is not None and admin_address is not None:
        token = control.admin_token if chosen.admin_token is None else "$HEADGATE_ADMIN_TOKEN"
        out.print(Text("  # see what a user has left, as an administrator", "dim"), soft_wrap=True)
        place = f"{admin_address.url.removeprefix('http://')}/v1/users/u1/quota"
        command = f'curl -s {place} \\\n  -H "Authorization: Bearer {token}"'
        out.print(Text(indent(command, "  "), "green"), soft_wrap=True)
    out.print()
    out.print(Text("  ctrl-c stops it", "dim"))
    sys.stdout.flush()


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
