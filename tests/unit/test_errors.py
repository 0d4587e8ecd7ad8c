"""Errors: one tree, and messages that people can read."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import errors
from headgate.core.decision import Decision, Hit
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, meter_for
from headgate.core.verdict import Verdict, bare_plan, verdict
from headgate.errors import HeadgateError, InvalidRules, Problem, Refused, StoreError, short_repr

EVERY_ERROR = [thing for _, thing in inspect.getmembers(errors, inspect.isclass) if issubclass(thing, Exception)]


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_everything_raised_on_purpose_is_one_tree(error: type[Exception]) -> None:
    """A program that catches HeadgateError catches everything that headgate raises on purpose."""
    assert issubclass(error, HeadgateError)


def test_bad_input_is_a_value_error() -> None:
    """What is wrong with an input is also Python's own ValueError; what is wrong with a store is not."""
    inputs = {
        errors.InvalidLimit,
        errors.InvalidRequest,
        errors.InvalidSettings,
        errors.WrongUse,  # of a decorator or an option
        errors.InvalidRules,
        errors.InvalidFields,
    }
    assert {error for error in EVERY_ERROR if issubclass(error, ValueError)} == inputs


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), ""),
        (("rules",), "rules"),
        (("rules", 2, "match", "methods"), "rules[2].match.methods"),
        ((2,), "[2]"),
        (("tiers", "free", "limits", "a.b"), "tiers.free.limits.a.b"),
        (("cost", "PO ST"), "cost.PO ST"),
        (("cost", ""), "cost['']"),
        (("", "a"), "[''].a"),
        (("a\nb",), "['a\\nb']"),
        (("\ud800",), "['\\ud800']"),
        (("a", None), "a[None]"),
        ((None,), "[None]"),
        ((True,), "[True]"),
        (("x" * 61,), "['" + "x" * 59 + "…]"),
    ],
)
def test_the_place_of_a_problem_in_words(path: tuple[str | int, ...], place: str) -> None:
    """A place reads like a path through the file; unusual names in it are quoted and cut."""
    assert Problem(path, "wrong").field == place
    assert str(Problem(path, "wrong")) == (f"{place}: wrong" if path else "wrong")


def test_a_refused_rule_set_lists_its_problems() -> None:
    """The message of a refusal is one line per problem, with file and line where they are known."""
    problems = [Problem(("a",), "one"), Problem(("b", 1), "two")]
    assert str(InvalidRules(problems)) == "a: one\nb[1]: two"
    located = InvalidRules(problems, ["rules.yaml:1: a: one", "rules.yaml:7: b[1]: two"])
    assert located.problems == tuple(problems)
    assert str(located) == "rules.yaml:1: a: one\nrules.yaml:7: b[1]: two"


def denied(retry_after: int | None) -> Verdict:
    """A denial of a bare key."""
    meter = meter_for(parse_limit("5/minute"), Algorithm.FIXED_WINDOW)
    assert meter is not None
    hit = Hit("rl:h:fw1m:a", meter, 1)
    return verdict(bare_plan(hit), [Decision(False, 0, 0, retry_after, 0, 0, 1)])  # noqa: FBT003 (its first field)


def test_a_refusal_says_when_to_come_back() -> None:
    """Who may not enter a block is told by what, and when to try again or that it is in vain."""
    refused = Refused(denied(1_500_000))
    assert str(refused) == "refused by default: try again in 1.500 s"
    assert not refused.verdict.allowed
    assert str(Refused(denied(None))) == "refused by default: it can never be admitted"


@pytest.mark.parametrize("transient", [True, False])
def test_a_store_error_says_whether_to_try_again(transient: bool) -> None:  # noqa: FBT001 (a table)
    """What a store raises says whether the same call may succeed later."""
    error = StoreError("gone", transient=transient)
    assert error.transient is transient
    assert str(error) == "gone"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (None, "None"),
        ("a", "'a'"),
        ("a\nb", "'a\\nb'"),
        (["a", {"b": 1}], "['a', {'b': 1}]"),
        ("x" * 100, "'" + "x" * 59 + "…"),
        (10**5000, "a number of thousands of digits"),
        ([10**5000], "a number of thousands of digits"),
    ],
    ids=lambda value: "huge" if isinstance(value, int | list) else ascii(value)[:20],
)
def test_values_in_messages_are_short(value: object, text: str) -> None:
    """A value in a message is shown as Python would, in one line, and cut after a glance."""
    assert short_repr(value) == text


class Unprintable:
    """Something that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError


def test_anything_can_be_shown() -> None:
    """Not even a value that cannot be printed keeps a message from being made."""
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (nested, Unprintable(), b"x" * 1_000_000, {"x" * 10_000: nested}, float("nan")):
        assert 0 < len(short_repr(value)) <= 61


@given(st.recursive(st.none() | st.text() | st.integers() | st.floats() | st.binary(), st.lists))
def test_what_is_shown_is_one_short_line(value: object) -> None:
    """Nothing that is shown can break a line or fill a screen."""
    assert short_repr(value).isprintable()
    assert len(short_repr(value)) <= 61
