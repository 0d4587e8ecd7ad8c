"""YAML as plain data: what values mean, where they stand, and what is refused. With both of PyYAML's parsers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.adapters import yaml_text
from headgate.errors import InvalidRules

PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@pytest.fixture(params=PARSERS, ids=lambda parser: parser.__name__, autouse=True)
def _parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with the parser written in Python and with the one written in C."""
    monkeypatch.setattr(yaml_text, "_Loader", request.param)


def lines(text: str) -> list[str]:
    """What is wrong with a text, each with its line."""
    with pytest.raises(InvalidRules) as caught:
        yaml_text.parse(text)
    assert all(line.isprintable() for line in caught.value.lines)
    return list(caught.value.lines)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # numbers as JSON has them
        ("0", 0),
        ("42", 42),
        ("-7", -7),
        ("+7", 7),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.5E-2", 0.015),
        ("1e999", float("inf")),
        # words
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        # what YAML takes for something else is the text it looks like
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("NO", "NO"),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("0x10", "0x10"),
        ("0o17", "0o17"),
        ("010", "010"),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("1_000.5", "1_000.5"),
        ("2025-01-01", "2025-01-01"),
        ("2025-01-01 10:00:00", "2025-01-01 10:00:00"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("<<", "<<"),
        ("1" * 40, "1" * 40),
        # quotes and blocks are always text
        ("'42'", "42"),
        ('"42"', "42"),
        ("'true'", "true"),
        ("'~'", "~"),
        ("''", ""),
        ('"a\\nb"', "a\nb"),
        ("|\n  42\n", "42\n"),
        (">-\n  true\n", "true"),
        # what rules are full of
        ("100/minute", "100/minute"),
        ("tier:search", "tier:search"),
        ("5 per 10 minutes # often enough", "5 per 10 minutes"),
        ("/users/{id}/posts", "/users/{id}/posts"),
        ("/api/*", "/api/*"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("[a, 1, [b], {c: no}]", ["a", 1, ["b"], {"c": "no"}]),
        ("{a: 1, b: {c: [2]}}", {"a": 1, "b": {"c": [2]}}),
        ("[]", []),
        ("{}", {}),
        ("Stra\u00dfe \U0001f600", "Stra\u00dfe \U0001f600"),
    ],
    ids=ascii,
)
def test_values_mean_what_they_look_like(text: str, value: object) -> None:
    """Only what JSON can say has a type; everything else is the text that stands there."""
    data = yaml_text.parse(f"value: {text}").data
    assert data == {"value": value}
    assert type(data["value"]) is type(value)


@pytest.mark.parametrize("name", ["no", "on", "true", "~", "null", "5", "1.5", "'quoted'", "2025-01-01", "a b"])
def test_names_are_always_text(name: str) -> None:
    """The name of a field is the text that stands there, whatever it would mean as a value."""
    assert yaml_text.parse(f"{name}: 1").data == {name.strip("'"): 1}


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "--- ~\n", "\ufeff", "%YAML 1.1\n---\n"])
def test_nothing_is_nothing(text: str) -> None:
    """A text without content has no data."""
    assert yaml_text.parse(text).data is None


def test_a_mark_at_the_beginning_is_skipped() -> None:
    """Files of some editors begin with a byte order mark."""
    assert yaml_text.parse("\ufeffrules: []\n").data == {"rules": []}


def test_every_part_has_a_line() -> None:
    """The line of each field is known; what is not there has the line of what is around it."""
    document = yaml_text.parse(
        "tiers:\n  free:\n    price: 0\nrules:\n- name: a\n  per:\n  - user\n  - ip\n\n- {name: b, limits: 5/minute}\n"
    )
    expected = {
        (): 1,
        ("tiers",): 1,
        ("tiers", "free"): 2,
        ("tiers", "free", "price"): 3,
        ("rules",): 4,
        ("rules", 0): 5,
        ("rules", 0, "per"): 6,
        ("rules", 0, "per", 1): 8,
        ("rules", 1, "limits"): 10,
        ("rules", 1, "colour"): 10,
        ("rules", 7): 4,
        ("rules", 0, "per", 1, "deeper"): 8,
        ("other",): 1,
    }
    assert {path: document.line(path) for path in expected} == expected


def test_a_syntax_error_has_its_line() -> None:
    """What is not YAML is refused with the line and with what the parser expected there."""
    assert lines("rules:\n- name: a\n  limits: [5/minute\n")[0].startswith(("3: not valid YAML", "4: not valid YAML"))
    assert lines("a: 1\nb: 'open\n")[0].startswith(
        ("2: not valid YAML: while scanning a quoted scalar", "3: not valid")
    )
    assert lines("a: 1\n  b: 2\n")[0].startswith("2: not valid YAML: ")
    assert lines("- a\nb: 1\n")[0].startswith("2: not valid YAML: while parsing a block")
    assert lines("a: *\n")[0].startswith("1: not valid YAML: while scanning an alias")
    assert lines("a: b: c\n")[0].startswith("1: not valid YAML: ")
    assert lines("%YAML 9.9\n---\na: 1\n")[0].startswith("1: not valid YAML: found incompatible YAML document")


def test_tabs_are_named() -> None:
    """Indenting with tabs is the mistake people do not see, so it is named."""
    for text in ("rules:\n\t- name: a\n", "rules:\n  \t- name: a\n"):
        (line,) = lines(text)
        assert line.startswith("2: not valid YAML: ")
        assert line.endswith("; indent with spaces, not with tabs")


def test_a_name_that_is_there_twice_is_refused() -> None:
    """The second of two fields with one name would silently win; all of them are told."""
    text = "rules: []\ntiers:\n  free: {price: 1, price: 2}\nrules: []\n'rules': []\n"
    assert lines(text) == [
        "3: tiers.free.price: appears twice, first on line 3",
        "4: rules: appears twice, first on line 1",
        "5: rules: appears twice, first on line 1",
    ]


def test_aliases_are_refused() -> None:
    """A few aliases can stand for billions of values; they are refused wherever they are."""
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    assert [line.partition(": aliases")[0] for line in lines(bomb)] == ["2: b[0]", "2: b[1]", "3: c[0]", "3: c[1]"]
    assert lines("a: &a {b: 1}\nc:\n  <<: *a\n") == ["3: c.<<: aliases (*name) are not supported; write the value out"]
    assert lines("a: *nowhere\n") == ["1: a: aliases (*name) are not supported; write the value out"]
    assert lines("a: &a [*a]\n") == ["1: a[0]: aliases (*name) are not supported; write the value out"]
    assert yaml_text.parse("a: &anchor 5\n").data == {"a": 5}


@pytest.mark.parametrize(
    "value", ["!!str 5", "!!python/object/apply:os.system [x]", "!mine {b: 1}", "! x", "!!binary aGk=", "!!float 5"]
)
def test_tags_are_refused(value: str) -> None:
    """A tag would change what a value means, or even run something; none is taken."""
    (line,) = lines(f"first: 1\na: {value}\n")
    assert line.startswith("2: a: tags (")
    assert line.endswith(") are not supported; leave the tag out")


@pytest.mark.parametrize(
    "text", ["? [a, b]\n: 1\n", "{a: 1}: 2\n", "[]: 1\n", "&x a: 1\n*x : 2\n", "{" * 50_000, "? " * 50_000]
)
def test_names_are_plain(text: str) -> None:
    """A list or mapping cannot be the name of a field."""
    assert lines(text)[0].endswith(": the name of a field must be plain text")


def test_only_one_document_is_read() -> None:
    """What follows a second '---' would be ignored, so it is refused."""
    assert lines("rules: []\n---\nrules: []\n") == ["2: a second document starts here; only one is read"]
    assert yaml_text.parse("---\nrules: []\n...\n").data == {"rules": []}


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "\n".join("  " * n + "a:" for n in range(1_000))],
)
def test_absurd_nesting_is_refused(text: str) -> None:
    """A file of a hundred thousand brackets is refused like any other mistake; the process survives."""
    assert lines(text)[0].endswith(": nested more than 20 deep")


def test_usual_nesting_is_fine() -> None:
    """Twenty levels are more than any rule needs."""
    data: Any = "x"
    for _ in range(20):
        data = [data]
    assert yaml_text.parse(json.dumps(data)).data == data
    assert lines(json.dumps([data])) == ["1: nested more than 20 deep"]


@pytest.mark.parametrize("character", [*"\x00\x07\x1b\x7f\ufffe", chr(0xD800), chr(0xDCFF)], ids=ascii)
def test_characters_that_cannot_stand_in_a_file(character: str) -> None:
    """Control characters and halves of surrogate pairs are refused with their line."""
    assert lines(f"a: 1\nb: x{character}y\n") == [f"2: the character {character!r} cannot stand in a file"]


def test_a_huge_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text beyond all measure is not even looked at."""
    monkeypatch.setattr(yaml_text, "MAX_SIZE", 1024 * 1024)
    assert lines("#" * (1024 * 1024 + 1)) == ["1: larger than 1 MiB"]
    assert yaml_text.parse("#" * 1024 * 1024).data is None


plain = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Cn", "Co"]), max_size=10)
json_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(json_data)
def test_json_is_read_as_it_is(data: object) -> None:
    """Every JSON document in UTF-8 is read as what it says."""
    assert yaml_text.parse(json.dumps(data, ensure_ascii=False)).data == data


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), max_size=60) | st.text("ab:-?[]{}&*!|>'\"%@#,~ \n\t1.", max_size=40))
def test_any_text_is_data_or_refused(text: str) -> None:
    """No text makes the reading fail other than by a refusal in printable lines."""
    try:
        document = yaml_text.parse(text)
    except InvalidRules as error:
        refused = error.lines
    else:
        refused = ()
        json.dumps(document.data)
    assert all(line.isprintable() for line in refused)
