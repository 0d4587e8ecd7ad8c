"""Documents of an earlier version become active."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.adapters.zones import zone
from headgate.controlplane.document_applier import DocumentApplier, DocumentOrigin, appliers
from headgate.controlplane.documents import make

if TYPE_CHECKING:
    from headgate.core.blocklist import BlockList
    from headgate.core.rule import RuleSet

OLD = [
    {"name": "search", "limits": "5/hour", "spread": {"shards": 8}},
    {"name": "office", "action": "allow", "per": "user", "match": {"ip_ranges": ["10.0.0.0/8"]}},
    {"name": "tab", "limits": "5/hour", "match": {"endpoints": ["/a\tb"]}},
]


class Active:
    """What would decide."""

    names: tuple[str, ...] = ()

    def publish(self, rule_set: RuleSet, number: int | None = None) -> None:
        """Keep the names of the rules."""
        assert number == 2
        self.names = tuple(rule.name for rule in rule_set.rules)

    def publish_blocks(self, blocks: BlockList) -> None:
        """Blocks do not matter here."""


def test_a_document_of_an_earlier_version_becomes_active() -> None:
    """One rule that may no longer be written does not keep the others out."""
    active = Active()
    applier = DocumentApplier(appliers(active, zone), None)
    assert asyncio.run(applier.take("rules", make("rules", 2, {"rules": OLD}), DocumentOrigin.FEED)) is None
    assert active.names == ("search", "office", "tab")
