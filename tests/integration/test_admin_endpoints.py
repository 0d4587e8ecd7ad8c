"""Every feature of the admin API, used once."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.admin import SEARCH, problem_of, with_admin

from headgate import Request
from headgate.dataplane.inspection import quota

if TYPE_CHECKING:
    from tests.support.admin import Admin


def test_a_rule_from_draft_to_history(database_url: str) -> None:
    """A rule is drafted, published, disabled, enabled, rolled back and deleted, and every version is in its history."""

    async def test(admin: Admin) -> None:
        made = await admin.ask("POST", "/v1/rules?draft=true", SEARCH)
        assert made.status_code == 201
        assert made.headers["location"] == "/v1/rules/search"
        assert made.json()["data"] is None
        assert (await admin.good("GET", "/v1/snapshot"))["running"]["rules"] == 0
        published = await admin.good("POST", "/v1/rules/search/publish", if_match=made.headers["etag"])
        assert (published["draft"], published["data"]["limits"]) == (None, ["100/minute"])
        assert (await admin.good("GET", "/v1/snapshot"))["running"]["rules"] == 1
        problem_of(await admin.ask("POST", "/v1/rules/search/publish", if_match='"1"'), 412)
        first = (await admin.good("GET", "/v1/rules/search/history"))["items"][0]["change"]
        assert not (await admin.good("POST", "/v1/rules/search/disable"))["data"]["enabled"]
        assert (await admin.good("POST", "/v1/rules/search/enable"))["data"]["enabled"]
        changed = SEARCH | {"limits": "5/minute"}
        assert (await admin.good("PUT", "/v1/rules/search", changed))["data"]["limits"] == ["5/minute"]
        await admin.good("PUT", "/v1/rules/search?draft=true", SEARCH | {"limits": "7/minute"})
        assert (await admin.good("POST", "/v1/rules/search/discard"))["draft"] is None
        back = await admin.good("POST", "/v1/rules/search/rollback", {"change": first})
        assert back["data"]["limits"] == ["100/minute"]
        problem_of(await admin.ask("POST", "/v1/rules/search/rollback", {"change": 999_999}), 404)
        renamed = await admin.good("POST", "/v1/rules/search/rename", {"name": "find"})
        assert (renamed["name"], renamed["id"]) == ("find", "search")
        problem_of(await admin.ask("POST", "/v1/rules/find/rename", {"name": "search"}, if_match='"1"'), 412)
        await admin.good("POST", "/v1/rules/find/rename", {"name": "search"})
        await admin.good("POST", "/v1/rules?draft=true", SEARCH | {"name": "second"})
        assert [rule["name"] for rule in (await admin.good("POST", "/v1/rules/publish"))["items"]] == ["second"]
        await admin.good("POST", "/v1/rules?draft=true", SEARCH | {"name": "never"})
        assert (await admin.ask("POST", "/v1/rules/never/discard")).status_code == 204
        names = [rule["name"] for rule in (await admin.good("GET", "/v1/rules?enabled=true"))["items"]]
        assert names == ["search", "second"]
        await admin.good("DELETE", "/v1/rules/search")
        problem_of(await admin.ask("GET", "/v1/rules/search"), 404)
        assert (await admin.good("GET", "/v1/rules/search/history"))["items"][0]["data"] is None

    with_admin(database_url, test)


def test_a_rule_set_as_code(database_url: str) -> None:
    """Validate, plan, apply, sync and dump work on whole rule sets, and import converts other formats."""

    async def test(admin: Admin) -> None:
        rule_set: dict[str, Any] = {"tiers": {"free": {"limits": {"api": "9/hour"}}}, "rules": [SEARCH]}
        assert await admin.good("POST", "/v1/ruleset/validate", rule_set) == {"valid": True, "problems": []}
        wrong = await admin.good("POST", "/v1/ruleset/validate", {"rules": [SEARCH | {"limits": "often"}]})
        assert not wrong["valid"]
        assert wrong["problems"]
        plan = await admin.good("POST", "/v1/ruleset/plan", rule_set)
        assert "search" in json.dumps(plan["added"])
        assert await admin.value("SELECT count(*) FROM changes") == 0
        await admin.good("POST", "/v1/ruleset/apply?owner=a.yaml", rule_set)
        assert (await admin.good("GET", "/v1/rules/search"))["owner"] == "a.yaml"
        dumped = await admin.good("GET", "/v1/ruleset")
        assert [rule["name"] for rule in dumped["rules"]] == ["search"]
        other = dumped | {"rules": [SEARCH | {"name": "other"}]}
        problem_of(await admin.ask("POST", "/v1/ruleset/sync", other), 409)
        problem_of(await admin.ask("POST", "/v1/ruleset/sync?delete_at_most=-1", other), 422)
        done = await admin.good("POST", "/v1/ruleset/sync?delete_at_most=1", other, idempotency_key="s")
        assert done["set_back"] == [{"rule": "search", "owner": "a.yaml"}]
        assert [rule["name"] for rule in (await admin.good("GET", "/v1/ruleset"))["rules"]] == ["other"]
        assert (await admin.good("GET", "/v1/ruleset/schema"))["$schema"].endswith("2020-12/schema")
        envoy = {"domain": "d", "descriptors": [{"key": "k", "rate_limit": {"unit": "minute", "requests_per_unit": 5}}]}
        imported = await admin.good("POST", "/v1/ruleset/import?form=envoy", envoy)
        assert imported["rule_set"]["rules"]
        problem_of(await admin.ask("POST", "/v1/ruleset/import?form=yaml", envoy), 422)
        problem_of(await admin.ask("POST", "/v1/ruleset/import?form=tiers", envoy), 422)

    with_admin(database_url, test)


def test_snapshots_lead_back(database_url: str) -> None:
    """Every published rule set can be read and restored; tables that were edited by hand can be published."""

    async def test(admin: Admin) -> None:
        nothing = await admin.good("GET", "/v1/snapshot")
        assert nothing == {"current": None, "running": {"number": 0, "rules": 0}}
        await admin.good("POST", "/v1/rules", SEARCH)
        await admin.good("PUT", "/v1/rules/search", SEARCH | {"limits": "5/minute"})
        newest, first = (await admin.good("GET", "/v1/snapshots"))["items"]
        assert newest["number"] > first["number"]
        one = await admin.good("GET", "/v1/snapshots?limit=1")
        assert one["items"] == [newest]
        assert (await admin.good("GET", f"/v1/snapshots?limit=1&after={one['next']}"))["items"] == [first]
        assert (await admin.good("GET", f"/v1/snapshots/{first['number']}"))["rules"][0]["limits"] == "100/minute"
        await admin.good("POST", f"/v1/snapshots/{first['number']}/rollback")
        assert (await admin.good("GET", "/v1/rules/search"))["data"]["limits"] == ["100/minute"]
        await admin.execute("""UPDATE rules SET data = jsonb_set(data, '{limits}', '["3/minute"]')""")
        published = await admin.ask("POST", "/v1/snapshot/publish")
        assert published.status_code == 201
        state = await admin.good("GET", "/v1/snapshot")
        assert state["current"]["number"] == state["running"]["number"] == published.json()["number"]
        for number in ("0", "999999"):
            problem_of(await admin.ask("GET", f"/v1/snapshots/{number}"), 404)
        for number in ("x", "-1", "1.0", "9" * 30):
            problem_of(await admin.ask("GET", f"/v1/snapshots/{number}"), 422)

    with_admin(database_url, test)


def test_tiers_users_and_overrides(database_url: str) -> None:
    """Accounts are created, changed, listed and deleted."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/rules", SEARCH)
        free = await admin.good("POST", "/v1/tiers", {"name": "free", "price": 0, "limits": {"api": "9/hour"}})
        assert free["is_default"]
        await admin.good(
            "POST", "/v1/tiers", {"name": "gold", "price": 9.5, "limits": {"api": ["1/second", "99/hour"]}}
        )
        problem_of(await admin.ask("POST", "/v1/tiers", {"name": "FREE"}), 409)
        one = await admin.good("GET", "/v1/tiers?limit=1")
        assert [tier["name"] for tier in one["items"]] == ["free"]
        two = await admin.good("GET", f"/v1/tiers?limit=1&after={one['next']}")
        assert ([tier["name"] for tier in two["items"]], two["next"]) == (["gold"], None)
        user = await admin.good("POST", "/v1/users", {"id": "u1", "tier": "gold"})
        assert user["tier_since"]
        problem_of(await admin.ask("POST", "/v1/users", {"id": "u1"}), 409)
        problem_of(await admin.ask("DELETE", "/v1/tiers/gold"), 409)
        path = "/v1/users/u1/overrides/search"
        assert (await admin.good("PUT", path, {"limits": "5/minute"}))["overrides"] == {"search": ["5/minute"]}
        problem_of(await admin.ask("PUT", path, {"limits": "often"}), 422)
        assert (await admin.good("DELETE", path))["overrides"] == {}
        problem_of(await admin.ask("DELETE", path), 404)
        assert (await admin.good("PUT", "/v1/users/u1", {"tier": "free"}))["tier"] == "free"
        assert [user["id"] for user in (await admin.good("GET", "/v1/users?tier=free"))["items"]] == ["u1"]
        await admin.good("DELETE", "/v1/users/u1")
        await admin.good("DELETE", "/v1/tiers/gold")

    with_admin(database_url, test)


def test_keys_are_shown_once_rotated_and_revoked(database_url: str) -> None:
    """A secret is in the answer that creates it, and in no later answer and no table."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/users", {"id": "u1"})
        made = await admin.ask("POST", "/v1/keys", {"user": "u1", "name": "phone"})
        secret, key = made.json()["secret"], made.json()["key"]
        assert secret.startswith("hg_")
        assert made.json()["shown_before"] is False
        path = made.headers["location"]
        assert (await admin.good("GET", path))["id"] == key["id"]
        assert (await admin.good("PUT", path, {"name": "tablet"}))["name"] == "tablet"
        rotated = await admin.good("POST", f"{path}/rotate", {"overlap_seconds": 60})
        assert rotated["secret"] != secret
        assert (await admin.good("GET", path))["rotated_to"] == rotated["key"]["id"]
        new = f"/v1/keys/{rotated['key']['id']}"
        assert (await admin.good("POST", f"{new}/rotate"))["secret"]
        assert (await admin.good("GET", new))["state"] == "revoked"
        assert (await admin.good("POST", f"{path}/revoke"))["state"] == "revoked"
        active = await admin.good("GET", "/v1/keys?user=u1&state=active")
        assert len(active["items"]) == 1
        for shown in (secret, rotated["secret"]):
            everything = await admin.good("GET", "/v1/keys") | await admin.good("GET", "/v1/changes")
            assert shown not in json.dumps(everything)
        for unknown in ("unknown", "0f8fad5b-d9cb-469f-a165-70867728950e"):
            problem_of(await admin.ask("GET", f"/v1/keys/{unknown}"), 404)

    with_admin(database_url, test)


def test_blocks_begin_change_and_end(database_url: str) -> None:
    """A block is of one user, key or network."""

    async def test(admin: Admin) -> None:
        block = await admin.good("POST", "/v1/blocks", {"network": "203.0.113.0/24", "reason": "scraping"})
        await admin.good("POST", "/v1/blocks", {"user": "u1"})
        assert block.pop("applied") == {"processes": 0, "have_it": 0, "waiting_for": []}
        path = f"/v1/blocks/{block['id']}"
        assert (await admin.good("GET", path)) == block
        until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        assert (await admin.good("PUT", path, {"reason": "worse", "until": until}))["reason"] == "worse"
        found = await admin.good("GET", "/v1/blocks?subject=203.0.113.9")
        assert [each["id"] for each in found["items"]] == [block["id"]]
        await admin.good("DELETE", path)
        problem_of(await admin.ask("DELETE", path), 404)

    with_admin(database_url, test)


def test_quota_and_explanation_are_live(database_url: str) -> None:
    """Usage shows at once, a reset clears it, and reading counts nothing."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/rules", SEARCH)
        await admin.good("POST", "/v1/users", {"id": "u1"})
        for _ in range(3):
            await admin.parts.limiter.check(Request(user="u1"))
        resets = datetime.fromisoformat((await admin.good("GET", "/v1/users/u1"))["quota_reset_at"])
        assert timedelta() < resets - datetime.now(UTC) <= timedelta(minutes=2)  # of a sliding window
        (entry,) = (await admin.good("GET", "/v1/users/u1/quota"))["items"]
        assert (entry["rule"], entry["limit"], entry["used"], entry["remaining"]) == ("search", "100/minute", 3, 97)
        (expected,) = await quota(admin.parts.limiter, Request(user="u1"))
        assert entry.keys() == expected.as_dict().keys()
        explained = await admin.good("POST", "/v1/explain", {"user": "u1", "method": "GET", "path": "/x"})
        assert (explained["verdict"]["allowed"], explained["verdict"]["remaining"]) == (True, 96)
        await admin.good("PUT", "/v1/users/u1/overrides/search", {"limits": "50/minute"})
        explained = await admin.good("POST", "/v1/explain", {"user": "u1"})
        assert explained["verdict"]["remaining"] == 46
        (entry,) = (await admin.good("GET", "/v1/users/u1/quota"))["items"]
        assert (entry["used"], entry["remaining"]) == (3, 47)
        (entry,) = (await admin.good("GET", "/v1/users/unknown/quota"))["items"]
        assert entry["remaining"] == 100
        reset = await admin.good("POST", "/v1/users/u1/quota/reset")
        assert (reset["counters"], reset["user"]) == (1, "u1")
        (entry,) = (await admin.good("GET", "/v1/users/u1/quota"))["items"]
        assert entry["used"] == 0
        found = await admin.good("GET", "/v1/users/u1")
        assert (found["quota_reset"], found["quota_reset_at"]) == (reset["quota_reset"], None)
        problem_of(await admin.ask("POST", "/v1/users/unknown/quota/reset"), 404)

    with_admin(database_url, test)


def test_a_key_is_explained_by_its_id(database_url: str) -> None:
    """Operators know ids only: the key's own limits show; a key that has ended, and a name that is none, get a note."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/rules", SEARCH | {"per": ["api_key"]})
        key = (await admin.good("POST", "/v1/keys", {"limits": {"search": "7/minute"}}))["key"]["id"]
        explained = await admin.good("POST", "/v1/explain", {"api_key": key})
        assert (explained["verdict"]["limit"], explained["notes"]) == (7, [])
        await admin.good("POST", f"/v1/keys/{key}/revoke")
        for ended in (key, "partner-7", "0f8fad5b-d9cb-469f-a165-70867728950e"):
            explained = await admin.good("POST", "/v1/explain", {"api_key": ended})
            assert explained["verdict"]["limit"] == 100
            (note,) = explained["notes"]
            assert "the API key is ignored" in note

    with_admin(database_url, test)


async def _some_events(admin: Admin) -> datetime:
    """Twelve denials and some admissions of the last two hours, and one old event."""
    now = datetime.now(UTC)
    await admin.execute("SELECT make_event_partition(now()), make_event_partition(now() - interval '60 days')")
    await admin.execute("SELECT make_event_partition(now() - interval '2 hours')")
    async with admin.database.use() as connection:
        await connection.executemany(
            "INSERT INTO events (at, id, user_id, rule, decision, ip) VALUES ($1, $2, $3, $4, $5, '192.0.2.1')",
            [
                *(
                    (now - timedelta(hours=2), f"d{n:02}", "u1" if n % 3 else "u2", "search", "denied")
                    for n in range(12)
                ),
                *((now - timedelta(hours=1), f"a{n:02}", "u1", "search", "allowed") for n in range(4)),
                (now - timedelta(hours=1), "other", "u3", "login", "denied"),
                (now - timedelta(days=60), "old", "u2", "search", "denied"),
            ],
        )
    return now


def test_events_in_pages(database_url: str) -> None:
    """Events come newest first, each once, from the last day unless another span is given."""

    async def test(admin: Admin) -> None:
        now = await _some_events(admin)
        seen: list[str] = []
        cursor = ""
        while cursor is not None:
            page = await admin.good("GET", f"/v1/events?limit=5{cursor and '&after='}{cursor}")
            seen += [event["id"] for event in page["items"]]
            cursor = page["next"]
        assert seen == ["other", *(f"a{n:02}" for n in (3, 2, 1, 0)), *(f"d{n:02}" for n in range(11, -1, -1))]
        (event,) = (await admin.good("GET", "/v1/events?rule=login"))["items"]
        assert (event["user"], event["ip"], event["decision"]) == ("u3", "192.0.2.1", "denied")
        assert len((await admin.good("GET", "/v1/events?user=u1&decision=allowed"))["items"]) == 4
        since, until = ((now - timedelta(days=days)).isoformat().replace("+00:00", "Z") for days in (61, 59))
        assert [
            each["id"] for each in (await admin.good("GET", f"/v1/events?since={since}&until={until}"))["items"]
        ] == ["old"]
        for wrong in (
            f"since={since}",
            f"since={until}&until={since}",
            "since=yesterday",
            "since=2026-01-31",
            "since=2026-02-31T00:00:00Z",
            "since=2026-01-31T00:00:00",
            "until=0001-01-01T00:00:00%2B23:59",
            "until=0001-01-01T00:00:00Z",
            "decision=maybe",
            "user=",
        ):
            problem_of(await admin.ask("GET", f"/v1/events?{wrong}"), 422)

    with_admin(database_url, test)


def test_the_worst_violators_of_a_day(database_url: str) -> None:
    """Violators have the number of denials and the time of the last."""

    async def test(admin: Admin) -> None:
        await _some_events(admin)
        worst = (await admin.good("GET", "/v1/violators"))["items"]
        assert [(each["user"], each["violations"]) for each in worst] == [("u1", 8), ("u2", 4), ("u3", 1)]
        assert [each["user"] for each in (await admin.good("GET", "/v1/violators?rule=search&limit=1"))["items"]] == [
            "u1"
        ]

    with_admin(database_url, test)


@pytest.mark.usefixtures("one_day")
def test_usage_by_day(database_url: str) -> None:
    """Usage covers yesterday and today, or up to a year."""

    async def test(admin: Admin) -> None:
        today = datetime.now(UTC).date()
        async with admin.database.use() as connection:
            await connection.executemany(
                "INSERT INTO usage_daily (day, user_id, rule, requests) VALUES ($1, $2, $3, 5)",
                [
                    (today - timedelta(days=days), user, rule)
                    for days in (0, 1, 2, 400)
                    for user in ("u1", "u2")
                    for rule in ("", "search")
                ],
            )
        assert len((await admin.good("GET", "/v1/usage"))["items"]) == 8
        first = await admin.good("GET", f"/v1/usage?user=u1&from={today - timedelta(days=2)}&limit=4")
        rest = await admin.good(
            "GET", f"/v1/usage?user=u1&from={today - timedelta(days=2)}&limit=4&after={first['next']}"
        )
        days = [(each["day"], each["rule"]) for each in first["items"] + rest["items"]]
        assert days == sorted(days)
        assert len(set(days)) == 6
        for wrong in (f"from={today - timedelta(days=400)}", f"from={today}&to=2020-01-01", "from=x", "to=2026-02-30"):
            problem_of(await admin.ask("GET", f"/v1/usage?{wrong}"), 422)
        assert (await admin.good("GET", "/v1/usage?to=0001-01-01"))["items"] == []

    with_admin(database_url, test)


def test_changes_in_pages(database_url: str) -> None:
    """Changes come newest first; new changes do not shift the pages."""

    async def test(admin: Admin) -> None:
        for number in range(5):
            await admin.good("POST", "/v1/users", {"id": f"u{number}"})
        page = await admin.good("GET", "/v1/changes?kind=user&limit=3")
        await admin.good("POST", "/v1/users", {"id": "new"})
        rest = await admin.good("GET", f"/v1/changes?kind=user&limit=3&after={page['next']}")
        assert [change["name"] for change in page["items"] + rest["items"]] == ["u4", "u3", "u2", "u1", "u0"]
        problem_of(await admin.ask("GET", "/v1/changes?kind=cat"), 422)

    with_admin(database_url, test)


def test_large_rule_sets_do_not_stall_the_others(database_url: str) -> None:
    """While thousands of rules are validated, small requests are answered."""

    async def test(admin: Admin) -> None:
        rules = [{"name": f"r{n}", "match": {"endpoints": [f"/api/{n}"]}, "limits": "5/minute"} for n in range(5_000)]
        working = asyncio.create_task(admin.good("POST", "/v1/ruleset/validate", {"rules": rules}))
        answered = 0
        while not working.done():
            await asyncio.wait({working}, timeout=0.01)
            assert (await admin.ask("GET", "/livez")).status_code == 200
            answered += 1
        assert (await working)["valid"]
        assert answered > 5

    with_admin(database_url, test)
