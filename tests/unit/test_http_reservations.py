"""Reserving, settling and releasing over HTTP, by whichever process is asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from headgate import Limiter
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.protocols.http1.messages import Head
from headgate.settings import Settings
from headgate.testing import FakeClock
from headgate.wiring.serving import reservation_secret

RULES: list[dict[str, Any]] = [
    {"name": "hour", "per": ["user"], "limits": "100/hour", "algorithm": "fixed_window"},
    {"name": "bucket", "per": ["user"], "layer": "b", "limits": "100/hour burst 200", "algorithm": "token_bucket"},
    {"name": "queue", "per": ["user"], "layer": "q", "limits": "100/minute burst 500", "algorithm": "leaky_bucket",
     "action": "throttle", "max_delay": "10m", "match": {"attributes": {"queue": "yes"}}},
    {"name": "month", "per": ["user"], "layer": "m", "limits": "1000/calendar month", "algorithm": "fixed_window"},
    {"name": "slots", "per": ["user"], "layer": "s", "limits": "50 concurrent", "algorithm": "concurrency"},
]  # fmt: skip
KEY = {"key": "k", "limit": "100/hour", "algorithm": "fixed_window"}


class Fleet:
    """Two services on the same counters."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.limiter = Limiter.open(rules=RULES, clock=self.clock)
        self.services = [self.service("shared"), self.service("shared")]

    def service(self, secret: str) -> DecisionService:
        return DecisionService(self.limiter, secret=secret)

    def ask(self, path: str, members: dict[str, Any], which: int = 0) -> tuple[int, Any]:
        request = HttpRequest(Head("POST", path), json.dumps(members).encode())
        status, _, body = asyncio.run(self.services[which].answer(request))
        return status, json.loads(body)

    def left(self, rule: str = "hour", **members: Any) -> int:  # noqa: ANN401 (of a check)
        body = self.ask("/v1/peek", {"user": "u", "cost": 0, **members})[1]
        remaining: int = next(each["remaining"] for each in body["decisions"] if each["rule"] == rule)
        return remaining

    def left_of_key(self) -> int | None:
        return asyncio.run(self.limiter.peek("k", "100/hour", 0, algorithm="fixed_window")).remaining


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.mark.parametrize(("actual", "left"), [(0, 100), (15, 85), (40, 60), (70, 30), (None, 60)])
def test_another_process_settles(fleet: Fleet, actual: int | None, left: int) -> None:
    """A reservation charges at once; whichever process settles it leaves what was used, in every kind of counter."""
    members = {"user": "u", "cost": 40, "attributes": {"queue": "yes"}}
    status, body = fleet.ask("/v1/reserve", members)
    assert (status, body["allowed"], body["reserved"]) == (200, True, 40)
    assert fleet.left() == 60
    settling = {"reservation": body["reservation"], "actual": actual}
    status, outcome = fleet.ask("/v1/settle", settling, 1)
    assert (status, outcome) == (200, {"settled": True, "reserved": 40, "actual": 40 if actual is None else actual})
    assert fleet.left() == left
    assert fleet.left("bucket") == left + 100
    assert fleet.left("month") == left + 900
    assert fleet.left("slots") == 50


def test_a_key_and_a_limit_can_be_reserved(fleet: Fleet) -> None:
    """Without rules, an amount of a key's limit is taken, and settled below or above it."""
    for actual, left in ((10, 90), (70, 20)):
        body = fleet.ask("/v1/reserve", {**KEY, "cost": 30, "ttl": 5})[1]
        assert fleet.ask("/v1/settle", {"reservation": body["reservation"], "actual": actual})[1]["settled"] is True
        assert fleet.left_of_key() == left


@pytest.mark.parametrize("first", [10, 40, 90])
@pytest.mark.parametrize("second", [0, 10, 40, 90, None])
def test_only_the_first_settling_counts(fleet: Fleet, first: int, second: int | None) -> None:
    """Settling or releasing once more, with whatever amount and in whichever process, changes nothing."""
    reservation = fleet.ask("/v1/reserve", {**KEY, "cost": 40})[1]["reservation"]
    fleet.ask("/v1/settle", {"reservation": reservation, "actual": first})
    fleet.ask("/v1/settle", {"reservation": reservation, "actual": second}, 1)
    fleet.ask("/v1/release", {"reservation": reservation}, 1)
    assert fleet.left_of_key() == 100 - first


def test_a_second_settling_says_so(fleet: Fleet) -> None:
    """The answer tells whether anything was booked."""
    reservation = fleet.ask("/v1/reserve", {**KEY, "cost": 40})[1]["reservation"]
    outcomes = [
        fleet.ask("/v1/settle", {"reservation": reservation, "actual": amount})[1]["settled"] for amount in (9, 8)
    ]
    assert outcomes == [True, False]
    assert fleet.ask("/v1/release", {"reservation": reservation}) == (200, {"released": False, "reserved": 40})


def test_releasing_gives_everything_back(fleet: Fleet) -> None:
    """What was released was never taken, slots included."""
    reservation = fleet.ask("/v1/reserve", {"user": "u", "cost": 40})[1]["reservation"]
    assert fleet.left("slots") == 10
    assert fleet.ask("/v1/release", {"reservation": reservation}, 1) == (200, {"released": True, "reserved": 40})
    assert (fleet.left(), fleet.left("bucket"), fleet.left("slots")) == (100, 200, 50)


@pytest.mark.parametrize("actual", [0, 10, 40, None])
def test_an_expired_reservation_stays_taken(fleet: Fleet, actual: int | None) -> None:
    """After its ttl nothing is given back, which is said in a sentence."""
    reservation = fleet.ask("/v1/reserve", {**KEY, "cost": 40, "ttl": 5})[1]["reservation"]
    fleet.clock.advance(seconds=5)
    status, problem = fleet.ask("/v1/settle", {"reservation": reservation, "actual": actual})
    assert (status, problem["detail"]) == (404, "the reservation has expired; what it took stays counted")
    assert fleet.left_of_key() == 60


def test_what_was_used_beyond_an_expired_reservation_is_charged(fleet: Fleet) -> None:
    """The ttl bounds only what is given back: what was used beyond it is charged, once, for a day from then on."""
    weekly = {"key": "k", "limit": "100/7d", "algorithm": "fixed_window"}
    reservation = fleet.ask("/v1/reserve", {**weekly, "cost": 40, "ttl": 5})[1]["reservation"]
    outcomes = []
    for seconds in (5, 3_600, 82_000, 800):  # the last one is too late
        fleet.clock.advance(seconds=seconds)
        outcomes.append(fleet.ask("/v1/settle", {"reservation": reservation, "actual": 90}, 1))
    assert [status for status, _ in outcomes] == [200, 200, 200, 404]
    assert [body["settled"] for _, body in outcomes[:3]] == [True, False, False]
    left = asyncio.run(fleet.limiter.peek("k", "100/7d", 0, algorithm="fixed_window")).remaining
    assert left == 10


def test_a_settling_in_time_is_not_repeated_after_the_ttl(fleet: Fleet) -> None:
    """A charge that is repeated when the reservation has expired charges nothing."""
    reservation = fleet.ask("/v1/reserve", {**KEY, "cost": 40, "ttl": 5})[1]["reservation"]
    outcomes = []
    for _ in range(3):
        outcomes.append(fleet.ask("/v1/settle", {"reservation": reservation, "actual": 50})[1]["settled"])
        fleet.clock.advance(seconds=20)
    assert outcomes == [True, False, False]
    assert fleet.left_of_key() == 50


def test_slots_are_free_again_after_the_ttl_too(fleet: Fleet) -> None:
    """Slots that rules held for a reservation come back whenever it is settled, as whatever."""
    for actual in (1, 50):
        reservation = fleet.ask("/v1/reserve", {"user": "u", "cost": 40, "ttl": 5})[1]["reservation"]
        assert fleet.left("slots") == 10
        fleet.clock.advance(seconds=6)
        fleet.ask("/v1/settle", {"reservation": reservation, "actual": actual})
        assert fleet.left("slots") == 50
        fleet.clock.advance(seconds=7_200)


def test_what_nothing_limits_is_settled_without_a_trace(fleet: Fleet) -> None:
    """A reservation under no limit has nothing to book."""
    body = fleet.ask("/v1/reserve", {"key": "k", "limit": "unlimited", "cost": 7})[1]
    assert fleet.ask("/v1/settle", {"reservation": body["reservation"], "actual": 9})[1]["settled"] is True


def test_a_refused_reservation_takes_nothing(fleet: Fleet) -> None:
    """A reservation beyond the limit is answered as a check would be, and has nothing to settle."""
    status, body = fleet.ask("/v1/reserve", {**KEY, "cost": 101})
    assert (status, body["allowed"], "reservation" in body) == (429, False, False)
    assert fleet.left_of_key() == 100


def test_another_secret_makes_another_reservation(fleet: Fleet) -> None:
    """What another service has sealed with another secret is unknown here."""
    fleet.services[1] = fleet.service("other")
    reservation = fleet.ask("/v1/reserve", {**KEY, "cost": 40})[1]["reservation"]
    status, problem = fleet.ask("/v1/settle", {"reservation": reservation, "actual": 0}, 1)
    assert (status, problem["error"]) == (404, "not_found")
    assert fleet.left_of_key() == 60


@pytest.mark.parametrize("text", ["", "x", "é", "A" * 70_000, "=" * 9, "AAAA" * 30, "\\ud800"])
def test_texts_that_are_no_reservations(fleet: Fleet, text: str) -> None:
    """Whatever else is sent as a reservation is answered with 404 and a sentence."""
    status, problem = fleet.ask("/v1/settle", {"reservation": text, "actual": 0})
    assert (status, problem["detail"][:30]) == (404, "there is no such reservation; ")


@pytest.mark.parametrize("place", [0, 20, 40, -1])
def test_a_reservation_that_was_changed_is_none(fleet: Fleet, place: int) -> None:
    """One other character anywhere breaks the seal."""
    text = fleet.ask("/v1/reserve", {**KEY, "cost": 40})[1]["reservation"]
    letters = [*text]
    letters[place] = "A" if letters[place] != "A" else "Q"
    assert fleet.ask("/v1/settle", {"reservation": "".join(letters), "actual": 0})[0] == 404


@pytest.mark.parametrize(
    ("path", "members", "sentence"),
    [
        ("reserve", {"limit": "5/hour"}, "a limit and an algorithm go with a key; without one, the rules decide"),
        ("reserve", {"key": "k", "user": "u"}, "a key has a limit of its own and nothing else"),
        ("reserve", {"key": "k"}, "a key needs a limit"),
        ("reserve", {"key": "", "limit": "5/hour"}, "a key must not be empty"),
        ("reserve", {"key": "k", "limit": "5/hours and more"}, "'hours and more' is not a duration"),
        ("reserve", {"key": "k", "limit": "5/hour", "algorithm": "magic"}, "'magic' is not an algorithm"),
        ("reserve", {"key": "k", "limit": "5 concurrent"}, "counts slots; use slot"),
        ("reserve", {"ttl": 0}, "ttl is a number of seconds above 0 and up to 86400"),
        ("reserve", {"ttl": "5"}, "ttl is a number of seconds above 0 and up to 86400"),
        ("reserve", {"usr": "u"}, "unknown member 'usr'; did you mean 'user'?"),
        ("reserve", {"user": "a\0b"}, "user must not contain the character NUL"),
        ("settle", {"actual": 1}, "reservation is missing, as in"),
        ("settle", {"reservation": 1}, "reservation is a text"),
        ("settle", {"reservation": "x", "actual": -1}, "actual is a whole number from 0 to"),
        ("release", {"reservation": "x", "actual": 1}, "unknown member 'actual'"),
    ],
)
def test_a_bad_body_gets_a_sentence(fleet: Fleet, path: str, members: dict[str, Any], sentence: str) -> None:
    """What cannot be understood is refused with 400 and says what to write."""
    status, problem = fleet.ask(f"/v1/{path}", members)
    assert status == 400
    assert sentence in problem["detail"]


def test_what_services_share_to_settle_is_the_same_in_every_version() -> None:
    """A reservation that was made before an upgrade is settled after it; each region settles its own."""
    settings = Settings(service_token="token-of-the-service", redis_url="redis://10.0.0.5:6379")  # noqa: S106 (made up)
    assert reservation_secret(settings) == "token-of-the-service\nredis://10.0.0.5:6379"
    assert reservation_secret(Settings(redis_url="redis://a")) == "None\nredis://a"
    eu, us = (reservation_secret(replace(settings, region=region)) for region in ("eu", "us"))
    assert len({eu, us, reservation_secret(settings)}) == 3
