"""One rule: every field, its default, and what is refused with which sentence."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.address import parse_network
from headgate.core.failure_policy import OnShortfall, OnStoreError
from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import Algorithm
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import Action, Match, Response, Rule
from headgate.core.units import HOUR, MINUTE, SECOND
from headgate.errors import InvalidRules


def rule(**fields: Any) -> Rule:  # noqa: ANN401 (fields of any shape)
    """The rule that these fields make, with a name and a limit of its own unless they are given."""
    return parse_rule_set([{"name": "search", "limits": "5/minute"} | fields]).rules[0]


def problems(**fields: Any) -> list[str]:  # noqa: ANN401 (fields of any shape)
    """What is wrong with such a rule; the list is empty if nothing is."""
    try:
        rule(**fields)
    except InvalidRules as error:
        return list(error.lines)
    return []


def test_a_rule_needs_a_name_and_limits_and_nothing_else() -> None:
    """Everything but the name and the limits of a rule has a default."""
    assert rule() == Rule("search", limits=(Rate(5, MINUTE),), layer="global")


def test_every_field_is_read() -> None:
    """A rule that uses every field there is means what it says."""
    made = rule(
        layer="extra",
        match={
            "endpoints": ["/api/search/", "/users/{id}"],
            "methods": ["get", "POST"],
            "ip_ranges": "10.0.0.0/8",
            "attributes": {"region": "eu", "app": "web"},
        },
        per=["attribute:region", "ip", "user"],
        limits=["10/second", "1000/hour"],
        algorithm="token_bucket",
        cost={"post": 5, "default": 2},
        action="throttle",
        max_delay="3s",
        on_store_error="local",
        spread="exact",
        wait_replicas=2,
        on_shortfall="deny",
        sample=0.5,
        priority=-7,
        response={"status": 503, "message": "Slow down.", "retry_after": 1.5},
        enabled=False,
    )
    assert made == Rule(
        "search",
        per=("user", "ip", "attribute:region"),
        limits=(Rate(10, SECOND), Rate(1000, HOUR)),
        match=Match(
            ("/api/search", "/users/{id}"),
            ("GET", "POST"),
            (),
            (parse_network("10.0.0.0/8"),),
            (("app", "web"), ("region", "eu")),
        ),
        layer="extra",
        algorithm=Algorithm.TOKEN_BUCKET,
        cost={"POST": 5, "default": 2},
        action=Action.THROTTLE,
        max_delay=3 * SECOND,
        on_store_error=OnStoreError.LOCAL,
        wait_replicas=2,
        on_shortfall=OnShortfall.DENY,
        sample=0.5,
        priority=-7,
        response=Response(503, "Slow down.", 1_500_000),
        enabled=False,
    )


@pytest.mark.parametrize("name", ["a", "A", "0", "search", "v1.search_by-name", "x" * 64])
def test_names_are_plain(name: str) -> None:
    """A name is letters, digits, '_', '.' and '-', so that it can stand in headers, keys and addresses."""
    assert rule(name=name).name == name


@pytest.mark.parametrize(
    "name",
    ["-a", ".a", "_a", "a b", "a/b", "a:b", "a{b}", "a\n", "\u00e9", "x" * 65, "a\x00", 5, True, [], ""],
    ids=ascii,
)
def test_other_names_are_refused(name: object) -> None:
    """A name that could not stand everywhere, or is no text, is refused."""
    assert problems(name=name)
    assert all(line.startswith("rules[0].name: ") for line in problems(name=name))


@pytest.mark.parametrize("body", [{"limits": "5/minute"}, {}, {"name": None}])
def test_a_rule_without_a_name_is_refused(body: dict[str, Any]) -> None:
    """A rule without a name is refused, with whatever else is wrong with it."""
    with pytest.raises(InvalidRules, match=r"rules\[0\].name: a rule needs a name"):
        parse_rule_set([body])


REFUSED: list[tuple[str, object, str]] = [
    ("layer", 5, "rules[0].layer: expected a text, not 5"),
    ("layer", "", "rules[0].layer: expected a text, not ''"),
    ("layer", "a b", "rules[0].layer: 'a b' is not a layer: use up to 200 letters, digits and any of _.:+@/-"),
    ("layer", "x" * 201, "is not a layer"),
    ("layer", "a\x00", "rules[0].layer: 'a\\x00' contains '\\x00', which cannot be part of a text"),
    ("algorithm", "magic", "rules[0].algorithm: 'magic' is not one of fixed_window, sliding_window_counter"),
    ("algorithm", ["fixed_window"], "rules[0].algorithm: ['fixed_window'] is not one of"),
    ("algorithm", "Fixed_Window", "is not one of"),
    ("action", "deny", "rules[0].action: 'deny' is not one of reject, throttle, log, allow, block"),
    ("action", True, "rules[0].action: True is not one of"),
    ("on_store_error", "fail", "rules[0].on_store_error: 'fail' is not one of allow, deny, local"),
    ("cost", -1, "rules[0].cost: a cost is a whole number from 0 to 1000000000000, not -1"),
    ("cost", 1.5, "rules[0].cost: a cost is a whole number from 0 to 1000000000000, not 1.5"),
    ("cost", "5", "rules[0].cost: a cost is a whole number"),
    ("cost", True, "rules[0].cost: a cost is a whole number"),
    ("cost", [5], "rules[0].cost: a cost is a whole number"),
    ("cost", 10**13, "rules[0].cost: a cost is a whole number"),
    ("cost", {"POST": -1}, "rules[0].cost.POST: a cost is a whole number"),
    ("cost", {"PO ST": 1}, "rules[0].cost.PO ST: 'PO ST' is neither an HTTP method nor 'default'"),
    ("cost", {"": 1}, "rules[0].cost['']: '' is neither an HTTP method nor 'default'"),
    ("cost", {5: 1}, "rules[0].cost[5]: 5 is neither an HTTP method nor 'default'"),
    ("cost", {"\u00df": 1}, "is neither an HTTP method nor 'default'"),
    ("cost", {"post": 1, "POST": 2}, "rules[0].cost.POST: the cost of POST appears twice"),
    ("cost", {"default": 1, "Default": 2}, "rules[0].cost.Default: the cost of default appears twice"),
    ("max_delay", "soon", "rules[0].max_delay: 'soon' is not a unit of time"),
    ("max_delay", -1, "rules[0].max_delay: expected a duration such as 2s, not -1"),
    ("max_delay", float("nan"), "rules[0].max_delay: expected a duration such as 2s, not nan"),
    ("max_delay", float("inf"), "rules[0].max_delay: expected a duration such as 2s, not inf"),
    ("max_delay", True, "rules[0].max_delay: expected a duration such as 2s, not True"),
    ("max_delay", [2], "rules[0].max_delay: expected a duration such as 2s, not [2]"),
    ("wait_replicas", -1, "rules[0].wait_replicas: expected a whole number from 0 to 100, not -1"),
    ("wait_replicas", 101, "rules[0].wait_replicas: expected a whole number from 0 to 100, not 101"),
    ("wait_replicas", 1.0, "rules[0].wait_replicas: expected a whole number"),
    ("wait_replicas", True, "rules[0].wait_replicas: expected a whole number"),
    ("sample", -0.1, "rules[0].sample: expected a number from 0 to 1, not -0.1"),
    ("sample", 1.1, "rules[0].sample: expected a number from 0 to 1, not 1.1"),
    ("sample", float("nan"), "rules[0].sample: expected a number from 0 to 1, not nan"),
    ("sample", "0.5", "rules[0].sample: expected a number from 0 to 1, not '0.5'"),
    ("sample", True, "rules[0].sample: expected a number"),
    ("priority", "high", "rules[0].priority: expected a whole number from -1000000 to 1000000, not 'high'"),
    ("priority", 1.5, "rules[0].priority: expected a whole number"),
    (
        "priority",
        10**5000,
        "rules[0].priority: expected a whole number from -1000000 to 1000000, not a number of thousands",
    ),
    ("enabled", "yes", "rules[0].enabled: expected true or false, not 'yes'"),
    ("enabled", 1, "rules[0].enabled: expected true or false, not 1"),
    ("response", "429", "rules[0].response: expected a mapping with status, message, retry_after…, not '429'"),
    ("response", [], "rules[0].response: expected a mapping"),
    ("response", {"status": 200}, "rules[0].response.status: expected a whole number from 400 to 599, not 200"),
    ("response", {"status": 600}, "rules[0].response.status: expected a whole number from 400 to 599, not 600"),
    ("response", {"status": "429"}, "rules[0].response.status: expected a whole number"),
    (
        "response",
        {"message": "x" * 1_001},
        "rules[0].response.message: a message has at most 1000 characters, not 1001",
    ),
    ("response", {"message": "a\x00b"}, "rules[0].response.message: 'a\\x00b' contains '\\x00'"),
    ("response", {"message": "\ud83d"}, "rules[0].response.message: '\\ud83d' contains '\\ud83d'"),
    ("response", {"message": 5}, "rules[0].response.message: expected a text, not 5"),
    ("response", {"message": ""}, "rules[0].response.message: expected a text, not ''"),
    ("response", {"retry_after": "later"}, "rules[0].response.retry_after: 'later' is not a unit"),
    ("response", {"body": "x"}, "rules[0].response.body: unknown field; known are status, message, retry_after"),
    ("limit", "5/minute", "rules[0].limit: unknown field; did you mean 'limits'?"),
    ("Priority", 5, "rules[0].Priority: unknown field; did you mean 'priority'?"),
    ("algoritm", "x", "rules[0].algoritm: unknown field; did you mean 'algorithm'?"),
    ("colour", "red", "rules[0].colour: unknown field; known are name, layer, match, per, limits"),
]


@pytest.mark.parametrize(
    ("field", "value", "sentence"), REFUSED, ids=lambda value: ascii(value)[:30] if isinstance(value, str) else ""
)
def test_a_wrong_field_is_named(field: str, value: object, sentence: str) -> None:
    """Whatever is wrong with a field is said with the field's place."""
    found = problems(**{field: value})
    assert any(sentence in line for line in found), found
    assert all(line.isprintable() and len(line) < 400 for line in found)


def test_null_is_the_same_as_leaving_a_field_out() -> None:
    """A field that is there but empty takes its default."""
    names = "layer match per algorithm cost action max_delay on_store_error on_overload spread wait_replicas"
    assert rule(**dict.fromkeys(f"{names} on_shortfall sample priority response enabled".split())) == rule()


def test_numbers_of_seconds_are_durations() -> None:
    """A duration may be given as a number of seconds, whole or not, up to ten years."""
    bucket: dict[str, Any] = {"algorithm": "token_bucket", "action": "throttle"}
    assert rule(**bucket).max_delay == 2 * SECOND
    assert rule(**bucket, max_delay=0).max_delay == 0
    assert rule(**bucket, max_delay=0.25).max_delay == 250_000
    assert rule(**bucket, max_delay=5_000_000).max_delay == 5_000_000 * SECOND
    assert problems(**bucket, max_delay=3661 * 86_400)


def test_a_block_answers_403_and_everything_else_429() -> None:
    """The status of a refusal is 429, or 403 where a rule blocks, unless the rule says otherwise."""
    assert rule().response == Response(429)
    assert rule(action="block", limits=None).response == Response(403)
    assert rule(action="block", limits=None, response={"status": 451}).response == Response(451)


def test_messages_may_have_lines_and_letters_of_all_kinds() -> None:
    """What a caller is told may run over several lines, in any language."""
    message = "Zu viele Anfragen\u00a0!\n\tBitte warten. \U0001f468\u200d\U0001f469"
    assert rule(response={"message": message}).response.message == message


def test_methods_and_costs_ignore_letter_case() -> None:
    """Methods are written in any case and kept in capitals; 'default' is a word, not a method."""
    assert rule(cost={"pOsT": 3, "DEFAULT": 2}).cost == {"POST": 3, "default": 2}
    assert rule(cost=4).cost == {"default": 4}


def test_limits_may_be_any_that_fit() -> None:
    """A concurrency rule takes slots, and a fixed window calendar periods."""
    assert rule(algorithm="concurrency", limits="3 concurrent").limits == (Slots(3),)
    made = rule(algorithm="fixed_window", limits="5/calendar day")
    assert made.limits == (parse_limit("5/calendar day"),)


@pytest.mark.parametrize(
    ("methods", "cost", "expected"),
    [
        (["GET"], {"POST": 5}, ["rules[0].cost: the price of POST has no effect: the rule is for other methods"]),
        (["GET"], {"GET": 2, "HEAD": 1, "default": 3}, []),
        (["POST"], {"HEAD": 5}, ["rules[0].cost: the price of HEAD has no effect: the rule is for other methods"]),
        (["get", "post"], {"POST": 5}, []),
    ],
)
def test_a_price_of_a_method_that_does_not_match_is_refused(
    methods: list[str], cost: dict[str, int], expected: list[str]
) -> None:
    """It would never be charged; a rule for GET is one for HEAD too."""
    assert problems(match={"methods": methods}, cost=cost) == expected
