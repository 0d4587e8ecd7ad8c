"""The questions that people ask afterwards, by API and by command, of a real PostgreSQL."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.admin import Admin, problem_of, with_admin

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres.count_sink import PostgresCounts
from headgate.cli import commands
from headgate.controlplane.rollups import Rollups
from headgate.core.counts import OTHER, Count, CountBatch, KeyCount, LatencyBucket
from headgate.core.histogram import bucket_of
from headgate.core.request import Request
from headgate.core.units import DAY, HOUR, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

_INSERT = """
INSERT INTO events (at, id, user_id, api_key, ip, endpoint, rule, decision, count, "limit", sequence, extra, status)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 429)"""
pytestmark = pytest.mark.usefixtures("one_day")


def _today() -> int:
    return wall_clock() // DAY * DAY


def _days() -> list[date]:
    """Today and yesterday."""
    return [datetime.fromtimestamp((_today() - before * DAY) / SECOND, UTC).date() for before in range(2)]


def _yesterday() -> str:
    return f"{_days()[1]}T00:00:00Z"


def _both() -> str:
    return f"from={_days()[1]}&to={_days()[0]}"


def _count(minute: int, kind: str = "allowed", **others: Any) -> Count:  # noqa: ANN401 (of any type)
    users = {others.pop("user", "u1"): others.pop("requests", 1)}
    plain = Count(minute, users, "free", "/a", is_degraded=False, charged=("search", 2), kind=kind, rule=None)
    return plain._replace(**others)


def _two_days() -> list[Count]:
    """Requests of yesterday and today, of two users and without a user."""
    today = _today()
    return [
        _count(today - DAY + HOUR, requests=100),
        _count(today - DAY + HOUR + MINUTE, "denied", rule="search", requests=20),
        _count(today - DAY + 2 * HOUR, user="u2", endpoint="/b", requests=30),
        _count(today, requests=5),
        _count(today, user=None, tier=None, endpoint="/b", charged=(), requests=2),
        _count(today, "blocked", user=None, endpoint="/b", charged=(), requests=7),
    ]


async def _fill(admin: Admin) -> None:
    """Counts of two days, and a rule that counts days."""
    rule = {"name": "search", "per": ["user"], "limits": "100/day", "algorithm": "fixed_window"}
    await admin.good("POST", "/v1/rules", rule)
    latencies = [LatencyBucket(_today() - DAY + HOUR, "free", "/a", ("search",), bucket_of(250), 99)]
    latencies.append(LatencyBucket(_today() - DAY + HOUR, "free", "/a", ("search",), bucket_of(9_000), 1))
    await PostgresCounts(admin.database).store(CountBatch("b", "server", "eu", _two_days(), latencies))
    await Rollups(admin.database, wall_clock).catch_up()


async def _event(admin: Admin, ago: timedelta, name: str, decision: str = "denied", **others: object) -> None:
    at = datetime.now(UTC) - ago
    given: dict[str, object] = {
        "user": None,
        "api_key": None,
        "ip": None,
        "endpoint": "/a",
        "rule": "search",
        "count": 100,
        "limit": 100,
    }
    given |= {"sequence": 0, "extra": None} | others
    values = [given[key] for key in ("user", "api_key", "ip", "endpoint", "rule")]
    rest = [given[key] for key in ("count", "limit", "sequence", "extra")]
    await admin.execute("SELECT make_event_partition($1)", at)
    await admin.execute(_INSERT, at, name, *values, decision, *rest)


def test_charts(database_url: str) -> None:
    """Counts by time and dimension, at each granularity the same sums, in pages, with quantiles of times."""

    async def test(admin: Admin) -> None:
        await _fill(admin)
        for granularity in ("minute", "hour", "day"):
            asked = f"/v1/metrics?granularity={granularity}&since={_yesterday()}"
            sums: dict[str, int] = {}
            cursor = ""
            while True:
                page = await admin.good("GET", f"{asked}&limit=2{cursor}")
                for each in page["items"]:
                    for kind in ("total", "denied", "blocked"):
                        sums[kind] = sums.get(kind, 0) + each[kind]
                if page["next"] is None:
                    break
                cursor = f"&after={page['next']}"
            assert sums == {"total": 164, "denied": 20, "blocked": 7}
        asked = f"/v1/metrics?granularity=day&since={_yesterday()}"
        by_rule = (await admin.good("GET", f"{asked}&by=rule"))["items"]
        assert [(each["rule"], each["total"], each["denied"]) for each in by_rule] == [
            ("search", 150, 20),
            ("search", 5, 0),
        ]
        assert by_rule[0]["p50"] == pytest.approx(0.00025, rel=0.2)
        assert 0.0002 < by_rule[0]["p99"] < 0.001
        assert by_rule[1]["p50"] is None
        both = (await admin.good("GET", f"{asked}&by=endpoint,tier"))["items"]
        assert {(each["endpoint"], each["tier"], each["total"]) for each in both} == {
            *{("/a", "free", 120), ("/b", "free", 30), ("/a", "free", 5)},
            *{("/b", "", 2), ("/b", "free", 7)},
        }
        of_one = (await admin.good("GET", f"{asked}&user=u2"))["items"]
        assert [(each["user"], each["total"]) for each in of_one] == [("", 30)]
        by_user = (await admin.good("GET", f"{asked}&by=user,region"))["items"]
        assert [(each["user"], each["region"], each["total"]) for each in by_user] == [
            ("u1", "eu", 120),
            ("u2", "eu", 30),
            ("u1", "eu", 5),
        ]
        assert (await admin.good("GET", f"{asked}&rule=none"))["items"] == []
        for wrong in ("by=colour", "by=user,rule", "granularity=minute&since=2026-01-01T00:00:00Z", "after=x"):
            problem_of(await admin.ask("GET", f"/v1/metrics?{wrong}"), 400 if "after" in wrong else 422)

    with_admin(database_url, test)


def test_noisy_endpoints(database_url: str) -> None:
    """Most requests, most denials, or the highest share denied first, over short spans and long ones."""

    async def test(admin: Admin) -> None:
        await _fill(admin)
        for since in (_yesterday(), (datetime.now(UTC) - timedelta(days=20)).strftime("%Y-%m-%dT00:00:00Z")):
            found = (await admin.good("GET", f"/v1/endpoints?since={since}"))["items"]
            assert [(each["endpoint"], each["requests"], each["denied"]) for each in found] == [
                ("/a", 125, 20),
                ("/b", 39, 7),
            ]
            for order in ("denied", "share"):
                worst = (await admin.good("GET", f"/v1/endpoints?since={since}&sort={order}"))["items"]
                assert [each["endpoint"] for each in worst] == (["/a", "/b"] if order == "denied" else ["/b", "/a"])
        assert (await admin.good("GET", "/v1/endpoints?since=2026-01-01T10:00:00Z&until=2026-01-01T11:00:00Z"))[
            "items"
        ] == []

    with_admin(database_url, test)


def test_who_is_near_a_limit(database_url: str) -> None:
    """What was recorded last counts; without a user, the key or the address; of a named user, the counters do."""

    async def test(admin: Admin) -> None:
        await _fill(admin)
        minute = timedelta(minutes=1)
        await _event(admin, 5 * minute, "e1", "allowed", user="u1", count=95)
        await _event(admin, 4 * minute, "e2", "allowed", user="u1", count=10)
        await _event(admin, 3 * minute, "e3", "allowed", user="u2", count=81)
        await _event(admin, 2 * minute, "e4", api_key="k1", ip="192.0.2.1")
        await _event(admin, minute, "e5", ip="192.0.2.1", count=90)
        await _event(admin, timedelta(hours=3), "e6", user="u3")
        found = (await admin.good("GET", "/v1/near-limits"))["items"]
        assert [(each["user"] or each["api_key"] or each["ip"], each["share"]) for each in found] == [
            ("k1", 1.0),
            ("192.0.2.1", 0.9),
            ("u2", 0.81),
        ]
        assert {each["source"] for each in found} == {"events"}
        assert len((await admin.good("GET", "/v1/near-limits?share=0.1&rule=search"))["items"]) == 4
        (rule,) = (await admin.good("GET", "/v1/utilisation"))["items"]
        assert (rule["subjects"], rule["near"], rule["highest"]) == (5, 5, 1.0)
        assert rule["p50"] == 0.95

        await admin.parts.limiter.check(Request(user="u9"), cost=90)
        (now,) = (await admin.good("GET", "/v1/near-limits?user=u9"))["items"]
        assert (now["count"], now["limit"], now["source"]) == (90, 100, "counters")
        assert (await admin.good("GET", "/v1/near-limits?user=u9&rule=other"))["items"] == []
        assert (await admin.good("GET", "/v1/near-limits?user=u8"))["items"] == []
        problem_of(await admin.ask("GET", f"/v1/near-limits?user=u9&since={_yesterday()}"), 422)
        problem_of(await admin.ask("GET", "/v1/near-limits?share=2"), 422)

    with_admin(database_url, test)


def test_the_worst_violators_without_a_user(database_url: str) -> None:
    """Denials are told apart by user, by key, by address, or by whichever is known."""

    async def test(admin: Admin) -> None:
        await _event(admin, timedelta(hours=1), "e1", user="u1", api_key="k1", ip="192.0.2.1")
        for number in range(2):
            await _event(admin, timedelta(hours=1), f"k{number}", api_key="k1", ip="192.0.2.1")
        await _event(admin, timedelta(hours=1), "i0", ip="192.0.2.1")
        await _event(admin, timedelta(hours=1), "i1", ip="192.0.2.1", extra={"stands_for": 2})

        async def worst(by: str) -> list[tuple[object, ...]]:
            found = (await admin.good("GET", f"/v1/violators?by={by}"))["items"]
            return [(each["user"], each["api_key"], each["ip"], each["violations"]) for each in found]

        assert await worst("user") == [("u1", None, None, 1)]
        assert await worst("api_key") == [(None, "k1", None, 3)]
        assert await worst("ip") == [(None, None, "192.0.2.1", 6)]
        assert await worst("anybody") == [
            (None, None, "192.0.2.1", 3),
            (None, "k1", None, 2),
            ("u1", None, None, 1),
        ]

    with_admin(database_url, test)


def test_violators_of_many_days(database_url: str) -> None:
    """Whole days come from what is counted, the hours around them from events; together each denial is counted once."""

    async def test(admin: Admin) -> None:
        since, until = f"{_days()[0] - timedelta(days=5)}T18:00:00Z", f"{_days()[0]}T06:00:00Z"
        start = _today() - 5 * DAY
        counts = [
            _count(start + DAY, "denied", rule="search", requests=40),
            _count(start + 2 * DAY, "denied", user="u2", rule="search", requests=41),
            _count(start + 17 * HOUR, "denied", rule="search", requests=7),
            _count(start + DAY, "blocked", user="u3", requests=99),
        ]
        await PostgresCounts(admin.database).store(CountBatch("b", "server", "eu", counts, []))
        for number in range(2):
            at = datetime.fromisoformat(since) + timedelta(hours=number)
            await _event(admin, datetime.now(UTC) - at, f"e{number}", user="u1", extra={"stands_for": 3})
        await _event(admin, datetime.now(UTC) - datetime.fromisoformat(until), "late", user="u1")
        for rule in ("", "&rule=search"):
            found = (await admin.good("GET", f"/v1/violators?since={since}&until={until}{rule}"))["items"]
            assert [(each["user"], each["violations"], each["last"] is None) for each in found] == [
                ("u1", 46, False),
                ("u2", 41, True),
            ]
        assert (await admin.good("GET", f"/v1/violators?since={since}&until={until}&rule=other"))["items"] == []
        problem_of(
            await admin.ask("GET", "/v1/violators?by=ip&since=2026-01-01T00:00:00Z&until=2026-01-10T00:00:00Z"), 422
        )

    with_admin(database_url, test)


def test_one_decision_by_its_id(database_url: str) -> None:
    """With what was asked, and the rule as it stood then, also when it was changed since."""

    async def test(admin: Admin) -> None:
        await _fill(admin)
        extra = {"attributes": {"plan": "a"}, "cost": 2}
        await _event(admin, timedelta(), "e/1", user="u1", extra=extra)
        await _event(admin, timedelta(days=300), "old", user="u1", rule=None)
        changed = {"per": ["user"], "limits": "7/day", "algorithm": "fixed_window"}
        await admin.good("PUT", "/v1/rules/search", changed)
        found = await admin.good("GET", "/v1/events/e%2F1")
        assert (found["decision"], found["user"], found["extra"]) == ("denied", "u1", extra)
        assert found["snapshot"] is not None
        assert found["rule_then"]["limits"] == "100/day"
        old = await admin.good("GET", "/v1/events/old")
        assert (old["snapshot"], old["rule_then"]) == (None, None)
        assert "by sample" in problem_of(await admin.ask("GET", "/v1/events/none"), 404)["message"]

    with_admin(database_url, test)


def test_one_users_story(database_url: str) -> None:
    """Days, events, limits as they stand, blocks and changes of a user, also of one who is not on record."""

    async def test(admin: Admin) -> None:
        await _fill(admin)
        await admin.good("POST", "/v1/tiers", {"name": "pro"})
        await admin.good("POST", "/v1/users", {"id": "u1"})
        await admin.good("PUT", "/v1/users/u1", {"tier": "pro"})
        await admin.good("POST", "/v1/blocks", {"user": "u1", "reason": "scraping"})
        await _event(admin, timedelta(minutes=1), "e1", user="u1")
        await admin.parts.limiter.check(Request(user="u1"), cost=9)
        story = await admin.good("GET", "/v1/users/u1/story")
        assert (story["tier"], len(story["days"]), len(story["events"])) == ("pro", 2, 1)
        assert story["days"][1] == {**story["days"][1], "requests": 120, "denied": 20, "costs": {"search": 200}}
        assert [(each["rule"], each["used"]) for each in story["limits"]] == [("search", 9)]
        assert story["blocks"][0]["reason"] == "scraping"
        assert [each["verb"] for each in story["changes"]] == ["changed", "created"]
        unknown = await admin.good("GET", "/v1/users/unknown/story")
        assert (unknown["days"], unknown["events"], unknown["changes"]) == ([], [], [])

    with_admin(database_url, test)


def test_usage_is_exported_line_by_line(database_url: str) -> None:
    """As CSV, or as CloudEvents with an id that is the same each time; more lines than a page has."""

    async def test(admin: Admin) -> None:
        await _fill(admin)
        many = [_count(_today(), user=f'="x{number:04}', charged=()) for number in range(1_200)]
        await PostgresCounts(admin.database).store(CountBatch("many", "server", "eu", many, []))
        answer = await admin.ask("GET", f"/v1/usage/export?{_both()}")
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        lines = list(csv.reader(io.StringIO(answer.text)))
        assert lines[0] == ["day", "user", "rule", "requests", "denied", "cost"]
        assert len(lines) == 1 + 1_200 + 3 * 2
        assert [line[1:] for line in lines if line[1] == "u2"] == [
            ["u2", "", "30", "0", "0"],
            ["u2", "search", "30", "0", "60"],
        ]
        events = [
            json.loads(line)
            for line in (
                await admin.ask("GET", f"/v1/usage/export?{_both()}&format=cloudevents&user=u1")
            ).text.splitlines()
        ]
        assert len(events) == len({event["id"] for event in events}) == 4
        assert sum(event["data"]["cost"] for event in events) == 210
        assert {event["subject"] for event in events} == {"u1"}
        problem_of(await admin.ask("GET", "/v1/usage/export?from=2026-01-02&to=2026-01-01"), 422)
        made = await admin.good("POST", "/v1/keys", {"name": "phone"})
        key = made["key"]["id"]
        keys = (KeyCount(_today() - _today() % DAY, key, 5, 2), KeyCount(_today() - _today() % DAY, "foreign", 1, 0))
        await PostgresCounts(admin.database).store(CountBatch("keys", "server", "eu", [], [], keys))
        answer = await admin.ask("GET", f"/v1/usage/export?{_both()}&of=keys")
        assert [line[1:] for line in csv.reader(io.StringIO(answer.text))] == [
            ["api_key", "requests", "denied"],
            [OTHER, "1", "0"],
            [key, "5", "2"],
        ]
        problem_of(await admin.ask("GET", f"/v1/usage/export?{_both()}&of=keys&user=u1"), 422)
        first = await admin.good("GET", f"/v1/usage/keys?{_both()}&limit=1")
        rest = await admin.good("GET", f"/v1/usage/keys?{_both()}&limit=1&after={first['next']}")
        assert [each["requests"] for each in (*first["items"], *rest["items"])] == [1, 5]
        one = await admin.good("GET", f"/v1/usage/keys?{_both()}&key={key}")
        assert [each["denied"] for each in one["items"]] == [2]
        shown = await admin.good("GET", f"/v1/keys/{key}")
        assert (shown["requests"], shown["requests_today"]) == (5, 5)

    with_admin(database_url, test)


def test_usage_is_reconciled(database_url: str) -> None:
    """The sum of all users equals the metrics of a day, a user's usage equals the counter, and what differs shows."""

    async def test(admin: Admin) -> None:
        await _fill(admin)
        found = (await admin.good("GET", f"/v1/usage/reconciliation?{_both()}"))["items"]
        assert [(each["what"], each["usage"], each["difference"]) for each in found] == [
            ("requests", 150, 0),
            ("denied", 20, 0),
            ("requests", 14, 0),
            ("denied", 7, 0),
        ]
        for _ in range(5):
            await admin.parts.limiter.check(Request(user="u1"), cost=2)
        *_, counter = (await admin.good("GET", f"/v1/usage/reconciliation?{_both()}&user=u1"))["items"]
        assert (counter["rule"], counter["usage"], counter["found"], counter["difference"]) == ("search", 10, 10, 0)
        await admin.parts.limiter.check(Request(user="u1"), cost=3)
        *_, counter = (await admin.good("GET", f"/v1/usage/reconciliation?{_both()}&user=u1"))["items"]
        assert counter["difference"] == -3
        await admin.execute("UPDATE usage_daily SET requests = requests + 1 WHERE user_id = 'u2' AND rule = ''")
        wrong, *_ = (await admin.good("GET", f"/v1/usage/reconciliation?{_both()}"))["items"]
        assert (wrong["against"], wrong["difference"]) == ("metrics", 1)

    with_admin(database_url, test)


@pytest.fixture
def headgate(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command on the database of this test, and returns what it says."""
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)

    def run(*words: str, code: int = 0) -> str:
        ended = commands.run(list(words))
        out, err = capsys.readouterr()
        assert ended == code, f"{words}: {ended}\n{out}{err}"
        assert "Traceback" not in out + err
        return out + err

    return run


def test_the_same_questions_by_command(
    database_url: str,
    headgate: Callable[..., str],
    tmp_path: Any,  # noqa: ANN401 (pytest's)
) -> None:
    """Tables for people, JSON for programs, an export into a file, and exit code 2 where numbers differ."""

    async def fill(admin: Admin) -> None:
        await _fill(admin)
        await admin.good("POST", "/v1/users", {"id": "u1"})
        await admin.good("POST", "/v1/blocks", {"user": "u1", "until": "2099-01-01T00:00:00Z"})
        await _event(admin, timedelta(minutes=5), "e1", user="u1", extra={"route": "/a/{id}"})
        await _event(admin, timedelta(minutes=5), "e2", api_key="k1")

    with_admin(database_url, fill)
    assert "164" not in headgate("metrics", "--granularity", "day", "--since", _yesterday(), "--by", "rule,tier")
    assert json.loads(headgate("metrics", "--since", _yesterday(), "--json"))
    assert "16 %" in headgate("endpoints", "--since", _yesterday(), "--sort", "denied")
    assert json.loads(headgate("endpoints", "--json")) is not None
    assert "key k1" in headgate("near-limits")
    assert "there are none" in headgate("near-limits", "--user", "u1")
    assert json.loads(headgate("near-limits", "--json"))
    assert "100 %" in headgate("utilisation")
    assert json.loads(headgate("utilisation", "--json"))
    assert "key k1" in headgate("violators", "--by", "anybody", "--until", "1m")
    assert "/a/{id}" in headgate("events", "show", "e1")
    assert json.loads(headgate("events", "show", "e1", "--json"))["id"] == "e1"
    assert "there is no event" in headgate("events", "show", "e9", code=1)
    assert "denied" in headgate("events", "--user", "u1")
    said = headgate("users", "story", "u1")
    assert "blocked until 2099-01-01 00:00: no reason given" in said
    assert "search 200" in said
    assert json.loads(headgate("users", "story", "u1", "--json"))["user"] == "u1"

    days = ("--from", str(_days()[1]), "--to", str(_days()[0]))
    assert "u2" in headgate("usage", *days)
    out = tmp_path / "usage.csv"
    assert "6 lines in" in headgate("usage", "export", *days, "--out", str(out))
    assert out.read_text(encoding="utf-8").count("\n") == 7
    assert len(headgate("usage", "export", *days, "--format", "cloudevents", "--user", "u2").splitlines()) == 2
    assert "cannot be written" in headgate("usage", "export", *days, "--out", str(tmp_path), code=1)
    assert "none" in headgate("usage", "reconcile", *days)
    assert "usage differs in 1 of 5 comparisons" in headgate("usage", "reconcile", *days, "--user", "u1", code=2)
    assert json.loads(headgate("usage", "reconcile", *days, "--user", "u1", "--json", code=2))[-1]["difference"] == 10
