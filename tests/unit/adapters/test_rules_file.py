"""Rules in a file: every mistake is told with file, line and field, and a bad file is refused as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headgate.adapters import yaml_text
from headgate.adapters.rules_file import RulesFile
from headgate.core.limit import Rate
from headgate.core.units import HOUR, MINUTE
from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[[str | bytes], RulesFile]

GOOD = """\
tiers:
  free: {price: 0, limits: {search: 100/hour}}
rules:
  - name: search
    match: {endpoints: [/api/search], methods: [GET]}
    per: [user]
    limits: tier:search
  - name: login
    per: ip
    limits: 5/minute
overrides:
  - {rule: login, user: u_42, limits: 50/minute}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes ``rules.yaml`` in a directory of its own, and makes that the current one."""
    monkeypatch.chdir(tmp_path)

    def written(content: str | bytes) -> RulesFile:
        (tmp_path / "rules.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
        return RulesFile("rules.yaml")

    return written


def refused(file: RulesFile) -> list[str]:
    """Why a file is refused."""
    with pytest.raises(InvalidRules) as caught:
        file.load()
    assert str(caught.value) == "\n".join(caught.value.lines)
    return list(caught.value.lines)


def test_a_good_file_is_read(write: Write) -> None:
    """A file with tiers, rules and overrides is read as they stand there."""
    rules = write(GOOD).load()
    assert [rule.name for rule in rules.rules] == ["search", "login"]
    assert rules.tiers["free"].limits["search"] == (Rate(100, HOUR),)
    assert rules.overrides[0].limits == (Rate(50, MINUTE),)


def test_json_is_read_as_well(write: Write) -> None:
    """A file may be JSON: it is YAML too."""
    assert write('{"rules": [{"name": "a", "limits": "5/minute", "sample": 1e-2}]}').load().rules[0].sample == 0.01


def test_an_explicitly_empty_set_is_fine(write: Write) -> None:
    """Who wants no rules says so."""
    assert write("rules: []\n").load().rules == ()


MISTAKES = [
    ("- name: search", "- name: search\n    colour: red", "5: rules[0].colour: unknown field; known are name, layer"),
    ("per: ip", "pers: ip", "9: rules[1].pers: unknown field; did you mean 'per'?"),
    ("5/minute", "5/fortnight", "10: rules[1].limits: 'fortnight' in '5/fortnight' is not a unit of time"),
    ("5/minute", "5", "10: rules[1].limits: a limit is written as text, for example '100/minute', not as 5"),
    ("5/minute", "1:30", "10: rules[1].limits: '1:30' is not a limit"),
    ("5/minute", "~", "10: rules[1].limits: a rule needs limits, for example '100/minute'"),
    ("5/minute", "", "10: rules[1].limits: a rule needs limits"),
    ("5/minute", "[5/minute, soon]", "10: rules[1].limits[1]: 'soon' is not a limit"),
    ("5/minute", "\n    - 5/minute\n    - soon", "12: rules[1].limits[1]: 'soon' is not a limit"),
    ("5/minute", "3 concurrent", "10: rules[1].limits: '3 concurrent ttl 1m' counts holders and needs"),
    ("5/minute", "5/minute\n    enabled: yes", "11: rules[1].enabled: expected true or false, not 'yes'"),
    ("5/minute", "5/minute\n    enabled: on", "11: rules[1].enabled: expected true or false, not 'on'"),
    (
        "5/minute",
        "5/minute\n    priority: 1_000",
        "11: rules[1].priority: expected a whole number from -1000000 to 1000000",
    ),
    ("5/minute", "5/minute\n    priority: 0x10", "11: rules[1].priority: expected a whole number"),
    ("5/minute", "5/minute\n    priority: '5'", "11: rules[1].priority: expected a whole number"),
    ("5/minute", "5/minute\n    cost: {POST: five}", "11: rules[1].cost.POST: a cost is a whole number from 0"),
    (
        "5/minute",
        "5/minute\n    match: {attributes: {flag: true}}",
        "11: rules[1].match.attributes.flag: expected a text",
    ),
    ("5/minute", "5/minute\n    max_delay: 2025-01-01", "11: rules[1].max_delay: '2025-01-01' is not a duration"),
    ("5/minute", "5/minute\n    response:\n      status: 200", "12: rules[1].response.status: expected a whole number"),
    (
        "5/minute",
        "5/calendar day tz Mars/Base\n    algorithm: fixed_window",
        "10: rules[1].limits: there is no time zone",
    ),
    ("name: login", "name: Search", "8: rules[1].name: the name 'Search' is taken by rules[0]"),
    ("name: login", "limits: 5/minute", "10: rules[1].limits: appears twice, first on line 8"),
    ("- name: login", "-", "9: rules[1].name: a rule needs a name"),
    ("name: login", "name:", "8: rules[1].name: a rule needs a name"),
    ("methods: [GET]", "methods: [GET, 'G T']", "5: rules[0].match.methods[1]: 'G T' is not an HTTP method"),
    ("methods: [GET]", "tiers: [gold]", "5: rules[0].match.tiers: there is no tier 'gold'"),
    ("search: 100/hour", "api: 100/hour", "7: rules[0].limits: tier 'free', which this rule can match, has no limit"),
    ("search: 100/hour", "search: never", "2: tiers.free.limits.search: 'never' is not a limit"),
    ("price: 0", "price: [0]", "2: tiers.free.price: expected a number from 0"),
    ("rule: login", "rule: logout", "12: overrides[0].rule: there is no rule 'logout'"),
    ("rule: login, ", "", "12: overrides[0].rule: there is no rule None"),
    ("user: u_42", "user: 42", "12: overrides[0].user: expected a text, not 42"),
    ("tiers:", "\ttiers:", "1: not valid YAML"),
    ("per: [user]", "per: [user", "not valid YAML"),
    ("per: [user]", "per: *user", "6: rules[0].per: aliases (*name) are not supported"),
    ("per: [user]", "per: !!seq [user]", "6: rules[0].per: tags ("),
    ("per: [user]", "per: [[user]]", "6: rules[0].per[0]: expected a text, not ['user']"),
    ("per: [user]", "per: {user: true}", "6: rules[0].per: expected a list of texts, not {'user': True}"),
    ("overrides:", "rules:", "11: rules: appears twice, first on line 3"),
    ("overrides:", "---\noverrides:", "11: a second document starts here"),
]


@pytest.mark.parametrize(("good", "bad", "line"), MISTAKES, ids=[ascii(bad)[:40] for _, bad, _ in MISTAKES])
def test_every_mistake_has_its_file_line_and_field(write: Write, good: str, bad: str, line: str) -> None:
    """A mistake is told with the file, the line it stands on, and the field."""
    assert GOOD.count(good) >= 1
    found = refused(write(GOOD.replace(good, bad, 1)))
    assert all(each.startswith("rules.yaml:") for each in found)
    assert any(line in each for each in found), found
    if line[0].isdigit():
        assert any(each.startswith(f"rules.yaml:{line}") for each in found), found


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    """Who edits a file sees everything that is wrong with it, in one go."""
    bad = GOOD.replace("5/minute", "soon").replace("per: [user]", "per: [you]").replace("rule: login", "rule: x")
    assert [line.partition(": ")[0] for line in refused(write(bad))] == [
        "rules.yaml:6",
        "rules.yaml:10",
        "rules.yaml:12",
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file, a directory or an impossible name is refused with the reason of the system."""
    missing = tmp_path / "missing.yaml"
    assert refused(RulesFile(missing)) == [f"{missing}: cannot be read: No such file or directory"]
    assert refused(RulesFile(tmp_path)) == [f"{tmp_path}: cannot be read: Is a directory"]
    assert refused(RulesFile("a\x00b"))[0].endswith(": cannot be read: embedded null byte")
    assert RulesFile("a\x00b").signature() == RulesFile("a\x00b").signature()


@pytest.mark.parametrize("content", ["", "\n", "# rules will come\n", "---\n", "~\n", "\ufeff", "{}"])
def test_an_empty_file_is_refused(write: Write, content: str) -> None:
    """A file that is being written is first of all empty; that must not switch all limits off."""
    assert refused(write(content)) == ["rules.yaml: is empty; a file without rules says 'rules: []'"]


@pytest.mark.parametrize("content", ["rules:\n", "tiers: {free: {}}\nrules:\n  # - {name: a}\n", '{"rules": null}'])
def test_a_list_of_rules_that_is_not_there_is_refused(write: Write, content: str) -> None:
    """A file cut off after its first line, or one whose rules are all comments, must not switch all limits off."""
    expected = "rules.yaml: has nothing after 'rules:'; a file without rules says 'rules: []'"
    assert refused(write(content)) == [expected]


@pytest.mark.parametrize("content", ["rules", "5", "true", "'a text'"])
def test_a_file_of_something_else_is_refused(write: Write, content: str) -> None:
    """A file that holds a single word or number is no rule set."""
    assert refused(write(content))[0].startswith("rules.yaml:1: expected a mapping with tiers, default_tier, rules")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"rules: []\nname: \xff\n", "rules.yaml:2: byte 0xff is not UTF-8"),
        (b"a: \xc0\xaf", "rules.yaml:1: byte 0xc0 is not UTF-8"),
        (b"\n\na: \xed\xa0\x80", "rules.yaml:3: byte 0xed is not UTF-8"),
        ("rules: []".encode("utf-16"), "rules.yaml:1: byte 0xff is not UTF-8"),
        (b"a: 1\nb: \x00", "rules.yaml:2: the character '\\x00' cannot stand in a file"),
        (b"\x7fELF", "rules.yaml:1: the character '\\x7f' cannot stand in a file"),
    ],
)
def test_a_file_that_is_not_text_is_refused(write: Write, content: bytes, line: str) -> None:
    """Bytes that are not UTF-8, and control characters, are refused with their line."""
    assert refused(write(content)) == [line]


def test_a_file_with_a_mark_at_its_beginning(write: Write) -> None:
    """Editors that begin a file with a byte order mark do no harm."""
    assert len(write(b"\xef\xbb\xbf" + GOOD.encode()).load().rules) == 2


def test_windows_line_ends(write: Write) -> None:
    """Lines are counted the same with the line ends of Windows."""
    assert len(write(GOOD.replace("\n", "\r\n")).load().rules) == 2
    found = refused(write(GOOD.replace("5/minute", "soon").replace("\n", "\r\n")))
    assert found[0].startswith("rules.yaml:10: rules[1].limits")


def test_a_file_of_ten_megabytes_is_only_slow_to_write(write: Write) -> None:
    """Ten megabytes of one text, of brackets or of a comment are read or refused like any others."""
    size = 10 * 1024 * 1024
    assert len(write("# " + "x" * size + "\nrules: []\n").load().rules) == 0
    assert refused(write("[" * size)) == ["rules.yaml:1: nested more than 20 deep"]
    found = refused(write(f"rules: [{{name: {'x' * size}, limits: 5/minute}}]"))
    assert found[0].startswith("rules.yaml:1: rules[0].name: 'xxx")
    assert len(found[0]) < 300


def test_a_file_beyond_all_measure_is_not_read_to_its_end(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is too large, even endless, is refused; a part of it is never taken for the whole."""
    monkeypatch.setattr(yaml_text, "MAX_SIZE", 1024 * 1024)
    content = GOOD + "#" + "\U0001f600" * 300_000
    assert refused(write(content)) == ["rules.yaml: is larger than 1 MiB"]
    assert refused(RulesFile("/dev/zero")) == ["/dev/zero: is larger than 1 MiB"]


def test_the_signature_changes_with_the_file(write: Write, tmp_path: Path) -> None:
    """Whether a file was written, replaced, removed or came back can be seen without reading it."""
    file = write(GOOD)
    path = tmp_path / "rules.yaml"
    seen = [file.signature()]
    assert file.signature() == seen[0]
    os.utime(path, ns=(1, 1))
    seen.append(file.signature())
    (tmp_path / "other.yaml").write_text(GOOD, encoding="utf-8")
    os.utime(tmp_path / "other.yaml", ns=(1, 1))
    (tmp_path / "other.yaml").replace(path)
    seen.append(file.signature())
    path.unlink()
    seen.append(file.signature())
    assert file.signature() == seen[-1]
    assert len(set(map(str, seen))) == 4
