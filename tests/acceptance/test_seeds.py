"""The tables and questions that the product was asked for with, answered by API and command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.service import Run, Service

TIERS = [
    {"name": "free", "display_name": "Free", "price": 0, "limits": {"search": "100/hour", "api": "1000/hour"}},
    {
        "name": "premium",
        "display_name": "Premium",
        "price": 49,
        "limits": {"search": "10000/hour", "api": "50000/hour"},
    },
    {
        "name": "enterprise",
        "display_name": "Enterprise",
        "price": 999,
        "limits": {"search": "1000000/hour", "api": "unlimited"},
    },
]
RULES: list[dict[str, Any]] = [
    {
        "name": "Free-Search",
        "layer": "search",
        "priority": 1,
        "match": {"endpoints": ["/api/search"], "tiers": ["free"]},
        "per": ["user"],
        "limits": "100/hour",
        "response": {"message": "Rate limit exceeded. Upgrade to Premium."},
    },
    {
        "name": "Premium-Search",
        "layer": "search",
        "priority": 1,
        "match": {"endpoints": ["/api/search"], "tiers": ["premium"]},
        "per": ["user"],
        "limits": "10000/hour",
    },
    {"name": "Global-Limit", "limits": "100000/minute", "algorithm": "fixed_window"},
    # The other documents count priority the other way round; lower wins here.
    {
        "name": "free_tier_limit",
        "priority": 300,
        "match": {"tiers": ["free"]},
        "per": ["user"],
        "limits": "1000/hour burst 20",
        "algorithm": "token_bucket",
    },
    {
        "name": "api_v1_limit",
        "priority": 400,
        "match": {"endpoints": ["/api/v1/*"]},
        "per": ["user"],
        "limits": "100/second",
    },
]
USERS = [
    {"id": "user_001", "tier": "free"},
    {"id": "user_002", "tier": "premium"},
    {"id": "user_003", "tier": "enterprise"},
]
EVENTS = """
SELECT make_event_partition(now());
INSERT INTO events (at, id, rule, user_id, decision) VALUES
    (now() - interval '2 minutes', 'evt_001', 'Free-Search', 'user_001', 'denied'),
    (now() - interval '1 minute', 'evt_002', 'Free-Search', 'user_002', 'denied'),
    (now() - interval '30 seconds', 'evt_003', 'Free-Search', 'user_001', 'denied'),
    (now() - interval '20 seconds', 'evt_004', 'Free-Search', 'user_003', 'allowed')
"""


@pytest.fixture(scope="module")
def seeded(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on a database with the tables' example rows, put there through the API; events as they are recorded."""
    from tests.support.service import Service  # noqa: PLC0415 (it is a class of the fixtures' module)

    url = postgres.new_database()
    data_dir: Path = tmp_path_factory.mktemp("data")
    service = Service(database_url=url, redis_url="embedded://", data_dir=str(data_dir))
    for path, things in (("tiers", TIERS), ("rules", RULES), ("users", USERS)):
        for thing in things:
            answer = service.admin.post(f"/v1/{path}", json=thing)
            assert answer.status_code == 201, answer.text
    postgres.execute(urlsplit(url).path.removeprefix("/"), EVENTS)
    yield service
    service.close()


@pytest.fixture
def asked(seeded: Service, headgate: Run) -> Callable[..., Any]:
    """What a command answers, as JSON."""

    def ask(*arguments: str) -> Any:  # noqa: ANN401 (JSON)
        ran = headgate(*arguments, "--json", admin_url=seeded.admin_url, admin_token=seeded.admin_token)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return ask


def _winners(explained: dict[str, Any]) -> dict[str, str]:
    return {layer["layer"]: layer["winner"]["rule"] for layer in explained["layers"] if layer["winner"]}


@pytest.mark.parametrize(
    ("user", "winner", "limit"), [("user_001", "Free-Search", 100), ("user_002", "Premium-Search", 10_000)]
)
def test_the_rule_that_applies_to_a_user_and_a_resource_is_found_by_priority(
    seeded: Service, asked: Callable[..., Any], user: str, winner: str, limit: int
) -> None:
    """The first question: which rule limits this user here. The tier is the user's own, by the database."""
    by_api = seeded.admin.post("/v1/explain", json={"user": user, "method": "GET", "path": "/api/search"}).json()
    by_command = asked("explain", "--user", user, "--method", "GET", "--path", "/api/search")
    for explained in (by_api, by_command):
        assert _winners(explained)["search"] == winner
        found = [each for each in explained["verdict"]["decisions"] if each["rule"] == winner]
        assert [each["limit"] for each in found] == [limit]


def test_the_decision_service_knows_the_tier_of_a_user(seeded: Service) -> None:
    """A caller states only who it is; tier, and so limit, come from the database."""
    decisions = seeded.check(user="user_002", method="GET", path="/api/search").json()["decisions"]
    assert {each["rule"] for each in decisions} == {"Premium-Search", "Global-Limit"}
    decisions = seeded.check(user="user_003", method="GET", path="/api/search").json()["decisions"]
    assert {each["rule"] for each in decisions} == {"Global-Limit"}


def test_a_users_remaining_quota_is_told(seeded: Service, asked: Callable[..., Any]) -> None:
    """The second question: what this user has left, of every limit that applies."""
    for _ in range(3):
        assert seeded.check(user="user_001", method="GET", path="/api/search").status_code == 200
    by_api = seeded.admin.get("/v1/users/user_001/quota").json()["items"]
    by_command = asked("quota", "user_001")["items"]
    for items in (by_api, by_command):
        left = {item["rule"]: (item["limit"], item["used"], item["remaining"]) for item in items}
        assert left["Free-Search"] == ("100/hour", 3, 97)
        assert left["free_tier_limit"][0] == "1000/hour burst 20"
        assert "Premium-Search" not in left


def test_the_top_violators_of_a_day_are_listed(seeded: Service, asked: Callable[..., Any]) -> None:
    """The third question: who was refused most by a rule in the last day."""
    expected = [("user_001", 2), ("user_002", 1)]
    by_api = seeded.admin.get("/v1/violators", params={"rule": "Free-Search"}).json()["items"]
    by_command = asked("violators", "--rule", "Free-Search")
    for items in (by_api, by_command):
        assert [(item["user"], item["violations"]) for item in items] == expected


def test_the_tables_rows_read_back_as_they_were_given(seeded: Service, asked: Callable[..., Any]) -> None:
    """Tiers with display name, price and named limits; users with tier and since when."""
    tiers = {tier["name"]: tier for tier in seeded.admin.get("/v1/tiers").json()["items"]}
    assert tiers["enterprise"]["limits"] == {"search": ["1000000/hour"], "api": ["unlimited"]}
    assert {tier["name"]: tier["price"] for tier in asked("tiers", "list")} == {
        "free": 0,
        "premium": 49,
        "enterprise": 999,
    }
    user = seeded.admin.get("/v1/users/user_002").json()
    assert user["tier"] == "premium"
    assert user["tier_since"] is not None
