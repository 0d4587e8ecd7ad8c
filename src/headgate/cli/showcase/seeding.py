"""What the company has entered: rules with a history, users, API keys, blocks and tokens, all through the admin API."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters.private_files import open_private
from headgate.cli.admin_client import at
from headgate.errors import Conflict

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.cli.admin_client import AdminClient
    from headgate.cli.showcase.scenario import Scenario

_KEYS: Final = "demo-keys.json"


def is_seeded(data_dir: Path) -> bool:
    """Whether the company is there from an earlier run."""
    return (data_dir / _KEYS).exists()


def seed(client: AdminClient, scenario: Scenario, data_dir: Path) -> None:
    """Enter everything, except what an interrupted run has entered.

    The secrets of the API keys are kept in a file of the data directory, for the traffic; it is written last.
    """
    client.post(at("ruleset", "apply"), scenario.first_rule_set())
    for name in scenario.earlier:
        client.put(at("rules", name), next(each for each in scenario.rule_set["rules"] if each["name"] == name))
    for user, tier in scenario.users().items():
        with suppress(Conflict):
            client.post(at("users"), {"id": user, "tier": tier})
    for user, overrides in scenario.overrides.items():
        for rule, limits in overrides.items():
            client.put(at("users", user, "overrides", rule), {"limits": limits})
    for kind, bodies in (("blocks", scenario.blocks), ("tokens", scenario.tokens)):
        for body in bodies:
            with suppress(Conflict):
                client.post(at(kind), body)
    secrets = {
        name: client.post(at("keys"), {"name": name, "user": user})["secret"] for name, user in scenario.keys().items()
    }
    with open_private(data_dir / _KEYS, "wb") as file:
        file.write(json.dumps(secrets).encode())


def kept_keys(data_dir: Path) -> dict[str, str]:
    """The secrets of the API keys by name; none if the file is lost, and then callers send none."""
    try:
        found: Any = json.loads((data_dir / _KEYS).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(secret) for name, secret in found.items()}
