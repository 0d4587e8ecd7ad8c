from __future__ import annotations

from headgate.core.hot_list import HotCounter, HotEntry, HotList, merged, rule_of


def test_lists_of_processes_are_added_up() -> None:
    """Rates of the same counter are added; a counter is leased if one process leases it; shares are of all units."""
    one = HotList(
        30.0, [HotEntry("rl:{g=api}:api:fw1s", 20.0, is_leased=False), HotEntry("rl:h:fw1s:k", 10.0, is_leased=False)]
    )
    two = HotList(10.0, [HotEntry("rl:{g=api}:api:fw1s", 10.0, is_leased=True)])
    assert merged([one, two], 5) == [
        HotCounter("rl:{g=api}:api:fw1s", "api", 30.0, 0.75, is_leased=True),
        HotCounter("rl:h:fw1s:k", None, 10.0, 0.25, is_leased=False),
    ]
    assert len(merged([one, two], 1)) == 1
    assert merged([HotList(0.0, [])], 5) == []


def test_the_rule_of_a_counter() -> None:
    """It stands in the counter's name; keys without a rule have none."""
    assert rule_of("rl:{u=u1}:search:sc1m|e=%2Fa") == "search"
    assert rule_of("rl:{u=u1}:a:b:tb1h") == "a:b"
    assert rule_of("rl:H:fw1s:%20") is None
