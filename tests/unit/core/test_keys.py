"""Keys: injective, of bounded length, and with a hash tag that no value can choose."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core.keys import check_key, companion, escape, hit_key, plain_hit, without_subject
from headgate.errors import InvalidRequest

HOSTILE = st.lists(
    st.sampled_from(
        ["{", "}", "|", "%", "%#", ":", "rl:", "rl:h:", "rl:H:", "fw1m:", "u=", "@", "a", "\x00", "\n", "\u00e9"]
    ),
    max_size=12,
).map("".join)
values = st.text(st.characters(), max_size=200) | HOSTILE
codes = st.sampled_from(["fw1m", "sc1h", "tb1s", "cc", "fwcalendar-month-anchor-15-tz-Europe/Berlin"])


def hash_tag(key: str) -> str:
    """What Redis Cluster chooses the slot by: the text between the first brace and the next closing one.

    "If the key contains a { character, and there is a } character to the right of {, and there are one or more
    characters between the first occurrence of { and the first occurrence of }, then only what is between is hashed."
    """
    start = key.find("{")
    end = key.find("}", start + 1)
    return key if start < 0 or end < 0 or end == start + 1 else key[start + 1 : end]


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("u_42", "u_42"),
        ("", ""),
        ("a b", "a b"),
        ("user@example.com", "user@example.com"),
        ("2001:db8::/64", "2001:db8::/64"),
        ("{x}", "%7Bx%7D"),
        ("a|b", "a%7Cb"),
        ("100%", "100%25"),
        ("%7B", "%257B"),
        ("%#", "%25#"),
        ("a\x00b", "a%00b"),
        ("a\nb", "a%0Ab"),
        ("\x7f", "%7F"),
        ("\u00e9", "%C3%A9"),
        ("\U0001f600", "%F0%9F%98%80"),
        ("\udcff", "%ED%B3%BF"),
        ("\ud800", "%ED%A0%80"),
        ("x" * 96, "x" * 96),
    ],
    ids=ascii,
)
def test_values_stay_readable(value: str, escaped: str) -> None:
    """What is plain stays plain in a key; braces, bars, percent signs and everything unprintable are encoded."""
    assert escape(value) == escaped


@pytest.mark.untraced
@settings(max_examples=200)
@given(values, values)
@example("%7B", "{")
@example("%#" + "0" * 40, "x" * 97)
@example("x" * 97, "x" * 98)
@example("\u00e9" * 16, "\u00e9" * 17)
@example("%C3%A9", "\u00e9")
@example("\udcc3\udca9", "\u00e9")
def test_different_values_stay_different(one: str, other: str) -> None:
    """Two values never share a counter, whatever they contain."""
    assert (escape(one) == escape(other)) == (one == other)


@pytest.mark.untraced
@settings(max_examples=200)
@given(values)
def test_an_escaped_value_is_short_and_harmless(value: str) -> None:
    """Inside a key a value is printable ASCII without braces and bars, and never longer than 96 characters."""
    escaped = escape(value)
    assert len(escaped) <= 96
    assert escaped.isascii()
    assert escaped == "" or escaped.isprintable()
    assert not set("{}|") & set(escaped)


def test_a_long_value_is_replaced_by_its_hash() -> None:
    """A value of a megabyte takes no more room than any other, and one byte of difference is enough."""
    one, other = escape("x" * 1_000_000), escape("x" * 999_999 + "y")
    assert one.startswith("%#")
    assert len(one) == len(other) == 42
    assert one != other


@pytest.mark.untraced
@settings(max_examples=200)
@given(values, values, codes)
def test_no_value_chooses_or_ends_the_hash_tag(subject: str, other: str, code: str) -> None:
    """The slot of a rule's counter is chosen by its whole subject, whatever the values are."""
    tag = f"u={escape(subject)}"
    key = f"rl:{{{tag}}}:search:{code}|e={escape(other)}"
    assert hash_tag(key) == tag
    assert hash_tag(companion(key, "holders")) == tag


@settings(max_examples=200)
@given(values.filter(bool), codes)
def test_no_bare_key_chooses_its_slot(key: str, code: str) -> None:
    """A bare key has no hash tag at all, and what belongs to it lives in its slot."""
    name = hit_key(key, code)
    assert hash_tag(name) == name
    beside = companion(name, "holders")
    assert hash_tag(beside) == name
    assert beside.startswith("rl:~{")
    assert len(name) <= 96 + len("rl:h::") + len(code)


@settings(max_examples=200)
@given(st.tuples(values, codes), st.tuples(values, codes))
@example(("a", "fw1m"), ("%61", "fw1m"))
@example(("{", "fw1m"), ("%7B", "fw1m"))
@example(("x" * 97, "fw1m"), (escape("x" * 97), "fw1m"))
@example(("rl:H:fw1m:%7B", "fw1m"), ("{", "fw1m"))
def test_different_bare_keys_and_limits_have_different_names(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Two bare keys, or one under two kinds of limits, never share a counter."""
    assert (hit_key(*one) == hit_key(*other)) == (one == other)


@settings(max_examples=200)
@given(values, codes)
def test_a_plain_bare_key_can_be_read_off_its_name(key: str, code: str) -> None:
    """The name of a plain bare key gives key and limit back; an escaped one gives nothing."""
    name = hit_key(key, code)
    assert plain_hit(name) == ((code, key) if escape(key) == key else None)


@pytest.mark.parametrize("name", ["rl:{u=a}:search:fw1m", "rl:H:fw1m:%7B", "", "other", "xrl:h:fw1m:a"])
def test_other_names_are_no_plain_bare_keys(name: str) -> None:
    """The name of a rule's counter is never taken for a bare key's."""
    assert plain_hit(name) is None


@given(values, values, codes)
def test_what_counters_of_one_limit_have_in_common(subject: str, other: str, code: str) -> None:
    """Without its subject a name says which limit it belongs to, and nothing about a user."""
    assert without_subject(f"rl:{{u={escape(subject)}}}:search:{code}|e={escape(other)}") == f"search:{code}"
    assert without_subject(f"rl:{{u={escape(subject)}}}:search:{code}") == f"search:{code}"
    assert without_subject(hit_key(subject, code)) == code


@pytest.mark.parametrize("key", ["a", " ", "\x00", "\ud800", "x" * 1_000_000], ids=lambda key: ascii(key[:9]))
def test_any_text_but_the_empty_one_is_a_key(key: str) -> None:
    """Keys are opaque: any text is one."""
    assert check_key(key) == key


@pytest.mark.parametrize("key", [None, 5, b"a", ["a"], True], ids=repr)
def test_a_key_is_a_text(key: object) -> None:
    """A key that is not text is refused."""
    with pytest.raises(InvalidRequest, match=r"^a key is text, not "):
        check_key(key)


def test_a_key_is_not_empty() -> None:
    """An empty key is most likely a mistake, so it is refused with the reason."""
    with pytest.raises(InvalidRequest, match="all callers would share one counter"):
        check_key("")


def test_a_huge_object_as_a_key_makes_a_short_message() -> None:
    """A megabyte of bytes in place of a key is refused in one short line."""
    with pytest.raises(InvalidRequest) as caught:
        check_key(b"x" * 1_000_000)
    assert len(str(caught.value)) < 100
