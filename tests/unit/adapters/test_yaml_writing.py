from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.adapters import yaml_text
from headgate.adapters.yaml_text import write_rule_set

EXAMPLES = Path(__file__).parents[3] / "examples" / "rules.yaml"
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.sampled_from(
        ["no", "null", "~", "1e5", "1_000", "1:30", "0x1f", "2030-01-31", "tier:search", "a\nb", " x ", "#", "*"]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**15), 10**15), st.floats(0, 1), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,9}", fullmatch=True)
RULE_SETS = st.fixed_dictionaries(
    {
        "tiers": st.dictionaries(NAMES, VALUES, max_size=3),
        "rules": st.lists(st.one_of(st.dictionaries(NAMES, VALUES, max_size=4), TEXTS), max_size=4),
        "default_tier": TEXTS,
    }
)


@given(RULE_SETS)
@example({"rules": [{"name": "x", "response": {"message": "word " * 50}}, {}]})
def test_whatever_is_written_is_read_back_as_the_same(data: dict[str, Any]) -> None:
    """A rules file that was written says, when read, what it was written from."""
    assert yaml_text.parse(write_rule_set(data)).data == data


def test_a_file_reads_well() -> None:
    """Tiers stand in a line each, rules apart from each other, and what is short stays in one line."""
    text = write_rule_set(yaml_text.parse(EXAMPLES.read_text()).data)
    assert "  free: {price: 0, limits: {search: 10/minute, api: 1000/hour}}\n" in text
    assert (
        "\n\n  - name: login\n"
        "    match: {endpoints: [/login], methods: [POST]}\n"
        "    per: [ip]\n"
        "    limits: 5/minute\n"
        "    algorithm: sliding_window_log\n"
        "\n  - name: uploads\n"
    ) in text
    assert max(map(len, text.splitlines())) <= 100


def test_what_is_long_is_spread_over_lines() -> None:
    """What fits no line has one for each of its fields."""
    endpoints = [f"/a/rather/long/path/{number}" for number in range(6)]
    text = write_rule_set({"rules": [{"name": "x", "match": {"methods": ["GET"], "endpoints": endpoints}}]})
    assert "    match:\n      methods: [GET]\n      endpoints: [/a/rather/long/path/0, " in text
