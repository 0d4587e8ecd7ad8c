"""The dashboard's files and sessions, and the endpoints that its pages need, without a browser."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.admin import BOOTSTRAP, SEARCH, problem_of, with_admin

from headgate import Limiter
from headgate.controlplane.access import Role
from headgate.edge.dashboard.files import static_files
from headgate.edge.http.service import DecisionService
from headgate.edge.problems import HttpProblem
from headgate.edge.simulator import SimulatorProcess

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    from tests.support.admin import Admin

    from headgate.edge.simulator import RuleSets

MARK = {"headgate-dashboard": "1"}


async def _signed_in(admin: Admin, token: str = BOOTSTRAP) -> httpx.Response:
    return await admin.client.post("/ui/session", json={"token": token}, headers=MARK)


def test_files_have_the_headers_that_a_browser_needs(database_url: str) -> None:
    """A strict policy, no framing, no sniffing, and a tag with which an unchanged file is not sent again."""

    async def test(admin: Admin) -> None:
        for path in ("/", "/ui"):
            answer = await admin.client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")
        for name in ("", *static_files()):
            answer = await admin.client.get(f"/ui/{name}")
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-cache"
            tag = {"if-none-match": answer.headers["etag"]}
            assert (await admin.client.get(f"/ui/{name}", headers=tag)).status_code == 304
        for missing in ("/ui/nothing.js", "/ui/../pyproject.toml", "/ui/%2e%2e/files.py", "/ui/pages"):
            problem_of(await admin.client.get(missing), 404)
        api = await admin.ask("GET", "/v1/me")
        assert api.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"

    with_admin(database_url, test)


def test_nothing_comes_from_elsewhere() -> None:
    """No file names another host, and none has a way by which text becomes markup or code."""
    for name, file in static_files().items():
        text = file.body.decode()
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)) - {"http://www.w3.org"}
        assert not {each for each in addresses if "://" in each}, name
        if name.endswith(".js"):
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        if name.endswith(".html"):
            assert not re.search(r"<style|style=|<script>|\son\w+=", text)


def test_a_session_from_sign_in_to_sign_out(database_url: str) -> None:
    """A cookie opens the API with the token's role; without the mark, after signing out or revocation it does not."""

    async def test(admin: Admin) -> None:
        assert (await admin.client.get("/ui/session")).json()["role"] is None
        wrong = await _signed_in(admin, "hgt_wrong")
        problem_of(wrong, 401)
        assert "set-cookie" not in wrong.headers
        assert admin.parts.refused.totals["wrong token"] == 1
        answer = await _signed_in(admin)
        assert answer.json() == {"name": "token:bootstrap", "role": "admin"}
        assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
        session = (await admin.client.get("/ui/session")).json()
        assert (session["name"], session["role"]) == ("token:bootstrap", "admin")
        assert (await admin.client.get("/v1/me", headers=MARK)).json()["role"] == "admin"
        problem_of(await admin.client.get("/v1/me"), 403)
        made = await admin.client.post("/v1/rules", json=SEARCH, headers=MARK)
        assert made.status_code == 201
        for headers in ({}, {**MARK, "origin": "http://evil"}, {**MARK, "sec-fetch-site": "cross-site"}):
            problem_of(await admin.client.delete("/v1/rules/search", headers=headers), 403)
            problem_of(await admin.client.post("/ui/session", json={"token": BOOTSTRAP}, headers=headers), 403)
            problem_of(await admin.client.delete("/ui/session", headers=headers), 403)
        assert (await admin.client.delete("/ui/session", headers=MARK)).status_code == 204
        problem_of(await admin.client.get("/v1/me", headers=MARK), 401)
        bodies: list[object] = [{}, {"token": 5}, {"token": BOOTSTRAP, "more": 1}, [], "x"]
        for body in bodies:
            problem_of(await admin.client.post("/ui/session", json=body, headers=MARK), 422)

    with_admin(database_url, test)


def test_a_revoked_token_ends_its_sessions(database_url: str) -> None:
    """And a session never has more than the role of its token."""

    async def test(admin: Admin) -> None:
        token = await admin.token(Role.VIEWER)
        assert (await _signed_in(admin, token)).json()["role"] == "viewer"
        assert (await admin.client.get("/v1/rules", headers=MARK)).status_code == 200
        problem_of(await admin.client.post("/v1/rules", json=SEARCH, headers=MARK), 403)
        problem_of(await admin.client.get("/v1/tokens", headers=MARK), 403)
        (record,) = (await admin.good("GET", "/v1/tokens"))["items"]
        await admin.good("DELETE", f"/v1/tokens/{record['id']}")
        problem_of(await admin.client.get("/v1/rules", headers=MARK), 401)
        assert (await admin.client.get("/ui/session")).json()["role"] is None

    with_admin(database_url, test)


def test_lists_are_searched_on_the_server(database_url: str) -> None:
    """Rules by a part of the name, users by how their ids begin, keys by how they begin; signs have no meaning."""

    async def test(admin: Admin) -> None:
        for name in ("search", "Research", "upload"):
            await admin.good("POST", "/v1/rules", SEARCH | {"name": name})
        for id_ in ("a%b", "a_b", "axb", "b"):
            await admin.good("POST", "/v1/users", {"id": id_})
        key = await admin.good("POST", "/v1/keys", {"user": "b"})

        async def found(path: str, member: str) -> list[str]:
            return [each[member] for each in (await admin.good("GET", path))["items"]]

        assert sorted(await found("/v1/rules?search=SEARCH", "name")) == ["Research", "search"]
        assert await found("/v1/rules?search=%25", "name") == []
        assert await found("/v1/rules?search=%00", "name") == []
        assert await found("/v1/users?prefix=a%25", "id") == ["a%b"]
        assert await found("/v1/users?prefix=a_", "id") == ["a_b"]
        assert await found("/v1/users?prefix=a&tier=none", "id") == []
        first = await admin.good("GET", "/v1/users?prefix=a&limit=2")
        assert len(first["items"]) == 2
        rest = await found(f"/v1/users?prefix=a&limit=2&after={first['next']}", "id")
        assert len(rest) == 1
        assert await found(f"/v1/keys?prefix={key['secret'][:6]}", "id") == [key["key"]["id"]]
        assert await found("/v1/keys?prefix=zz", "id") == []
        problem_of(await admin.ask("GET", "/v1/keys?prefix=hg&user=b"), 422)

    with_admin(database_url, test)


def test_a_draft_in_both_forms(database_url: str) -> None:
    """YAML becomes data and data becomes YAML, both checked by the core; nothing is stored."""

    async def test(admin: Admin) -> None:
        text = "name: search\nper: [user]\nlimits: 100/minute\n"
        read = await admin.good("POST", "/v1/ruleset/draft", {"yaml": text})
        assert (read["valid"], read["data"]) == (True, SEARCH)
        written = await admin.good("POST", "/v1/ruleset/draft", {"data": SEARCH | {"enabled": True}})
        assert written["data"] == SEARCH
        assert (await admin.good("POST", "/v1/ruleset/draft", {"yaml": written["yaml"]}))["data"] == SEARCH
        for action in ("log", "throttle"):
            more = {"action": action, **({"algorithm": "leaky_bucket"} if action == "throttle" else {})}
            other = await admin.good("POST", "/v1/ruleset/draft", {"data": SEARCH | more})
            assert (other["valid"], other["data"]["action"]) == (True, action)
            assert f"action: {action}\n" in other["yaml"]
        whole = await admin.good("POST", "/v1/ruleset/draft", {"data": {"rules": [SEARCH]}})
        assert whole["yaml"].startswith("rules:\n")
        for yaml, word in (("name: [", "not valid YAML"), ("just text", "expected a rule")):
            wrong = await admin.good("POST", "/v1/ruleset/draft", {"yaml": yaml})
            assert (wrong["valid"], wrong["data"]) == (False, None)
            assert word in wrong["problems"][0]["message"]
        invalid = await admin.good("POST", "/v1/ruleset/draft", {"data": SEARCH | {"limits": "often"}})
        assert (invalid["valid"], invalid["problems"][0]["field"]) == (False, "limits")
        for body in ({}, {"yaml": text, "data": SEARCH}):
            problem_of(await admin.ask("POST", "/v1/ruleset/draft", body), 422)
        for large in ({"data": SEARCH | {"description": "x" * 80_000}}, {"yaml": "#" * 80_001}):
            problem_of(await admin.ask("POST", "/v1/ruleset/draft", large), 422)
        problem_of(await admin.ask("POST", "/v1/ruleset/draft", {"yaml": "#" * 1_100_000}), 413)
        assert await admin.value("SELECT count(*) FROM changes") == 0

    with_admin(database_url, test)


def test_a_draft_beside_others(database_url: str) -> None:
    """Names, ids, tiers and own limits are compared with what is stored, without reading other rules."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/tiers", {"name": "pro", "limits": {"api": "5/minute"}})
        await admin.good("POST", "/v1/rules", SEARCH)
        await admin.good("POST", "/v1/users", {"id": "u1"})
        await admin.good("PUT", "/v1/users/u1/overrides/search", {"limits": "9/minute"})

        async def problems(data: dict[str, Any]) -> list[str]:
            found = await admin.good("POST", "/v1/ruleset/draft", {"data": data})
            return [f"{each['field']}: {each['message']}" for each in found["problems"]]

        assert await problems(SEARCH | {"limits": "7/hour"}) == []
        assert await problems(SEARCH | {"name": "SEARCH"}) == ["name: the name 'SEARCH' is taken by the rule 'search'"]
        (taken,) = await problems(SEARCH | {"name": "other", "id": "search"})
        assert taken.startswith("id: the id 'search' is that of the rule 'search'")
        assert await problems(SEARCH | {"name": "tiered", "limits": "tier:api"}) == []
        (missing,) = await problems(SEARCH | {"name": "tiered", "limits": "tier:search"})
        assert "has no limit named 'search'" in missing
        (unfit,) = await problems({"name": "search", "action": "allow"})
        assert "1 user has own limits for it" in unfit
        assert await problems({"rules": [SEARCH | {"limits": "tier:api"}]}) == []
        assert (
            await problems({"rules": [SEARCH | {"limits": "tier:new"}], "tiers": {"pro": {"limits": {"new": "1/s"}}}})
            == []
        )
        wrong, *_ = await problems({"rules": [SEARCH], "tiers": "none"})
        assert wrong.startswith("tiers: ")

    with_admin(database_url, test)


def test_who_uses_a_tier(database_url: str) -> None:
    """Users and keys on it, and rules that match it or take a limit of it; those without a tier are on the default."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/tiers", {"name": "free", "limits": {"api": "5/minute"}})
        await admin.good("POST", "/v1/tiers", {"name": "pro", "limits": {"api": "9/minute", "other": "1/s"}})
        for user in ({"id": "a", "tier": "pro"}, {"id": "b"}, {"id": "c", "tier": "free"}):
            await admin.good("POST", "/v1/users", user)
        await admin.good("POST", "/v1/keys", {"user": "b", "tier": "pro"})
        tiered = SEARCH | {"limits": "tier:api"}
        await admin.good("POST", "/v1/rules", tiered | {"name": "all"})
        await admin.good("POST", "/v1/rules", tiered | {"name": "frees", "match": {"tiers": ["free"]}})
        await admin.good("POST", "/v1/rules", SEARCH | {"name": "pros", "match": {"tiers": ["pro"]}})
        await admin.good("POST", "/v1/rules?draft=true", tiered | {"name": "soon"})
        pro = await admin.good("GET", "/v1/tiers/pro/use")
        assert (pro["users"], pro["api_keys"], pro["has_more_rules"]) == (1, 1, False)
        assert pro["rules"] == [
            {"rule": "all", "matches_tier": False, "limits": ["api"]},
            {"rule": "pros", "matches_tier": True, "limits": []},
        ]
        free = await admin.good("GET", "/v1/tiers/free/use")
        assert (free["users"], free["api_keys"]) == (2, 0)
        assert {each["rule"]: each["matches_tier"] for each in free["rules"]} == {"all": False, "frees": True}
        problem_of(await admin.ask("GET", "/v1/tiers/none/use"), 404)

    with_admin(database_url, test)


def test_rules_by_state(database_url: str) -> None:
    """Enforced, shadow and disabled rules, and those with a draft."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/rules", SEARCH)
        await admin.good("POST", "/v1/rules", SEARCH | {"name": "watched", "action": "log"})
        await admin.good("POST", "/v1/rules", SEARCH | {"name": "off", "enabled": False, "action": "log"})
        await admin.good("POST", "/v1/rules?draft=true", SEARCH | {"name": "soon"})
        wanted = {"enforced": ["search"], "shadow": ["watched"], "disabled": ["off"], "draft": ["soon"]}
        for state, names in wanted.items():
            found = await admin.good("GET", f"/v1/rules?state={state}")
            assert [each["name"] for each in found["items"]] == names
        problem_of(await admin.ask("GET", "/v1/rules?state=other"), 422)

    with_admin(database_url, test)


def test_of_very_many_rules_only_those_in_use_are_looked_at(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's page then has the limits for all paths and those that counted the user, and says that there are more."""
    monkeypatch.setattr("headgate.edge.admin.endpoints.decisions.MAX_RULES_EACH", 2)

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/rules", SEARCH)
        story = await admin.good("GET", "/v1/users/u1/story")
        assert story["limits_are_all"]
        for name in ("used", "unused"):
            await admin.good("POST", "/v1/rules", SEARCH | {"name": name, "match": {"endpoints": [f"/{name}"]}})
        used = (
            "INSERT INTO usage_daily (day, user_id, rule, requests) VALUES (now()::date, 'u1', 'used', 1) RETURNING 1"
        )
        assert await admin.value(used) == 1
        story = await admin.good("GET", "/v1/users/u1/story")
        assert not story["limits_are_all"]
        assert {each["rule"] for each in story["limits"]} == {"search", "used"}

    with_admin(database_url, test)


def test_one_counter_is_reset(database_url: str) -> None:
    """With a rule only its counters are emptied."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/rules", SEARCH)
        await admin.good("POST", "/v1/rules", SEARCH | {"name": "other", "match": {"endpoints": ["/o"]}})
        await admin.good("POST", "/v1/users", {"id": "u1"})
        assert (await admin.good("POST", "/v1/users/u1/quota/reset?rule=other"))["counters"] == 1
        assert (await admin.good("POST", "/v1/users/u1/quota/reset"))["counters"] == 2
        assert (await admin.good("POST", "/v1/users/u1/quota/reset?rule=unknown"))["counters"] == 0

    with_admin(database_url, test)


def test_a_simulation_of_a_draft(database_url: str) -> None:
    """The draft takes the place of the rule of its name; the report is handed on; a process without one says so."""

    async def test(admin: Admin) -> None:
        given: list[Any] = []

        async def simulate(rule_sets: RuleSets, *arguments: int) -> bytes:
            given.append((*await rule_sets(), *arguments))
            return b'{"requests": 0}'

        problem_of(await admin.ask("POST", "/v1/simulate", {"rules": []}), 404)
        object.__setattr__(admin.parts, "simulate", simulate)
        await admin.good("POST", "/v1/rules", SEARCH)
        draft = SEARCH | {"limits": "1/minute"}
        for body in (draft, {"rules": [draft, SEARCH | {"name": "new"}]}):
            assert await admin.good("POST", "/v1/simulate?seconds=60", body) == {"requests": 0}
            draft_rules, against = ({each["name"]: each["limits"] for each in one["rules"]} for one in given[-1][:2])
            assert draft_rules["search"] == "1/minute"
            assert against == {"search": "100/minute"}
        assert given[-1][2:] == (60, 20)
        for odd in ({"name": ["a list"]}, {"rules": ["no rule"], "tiers": "none"}):
            await admin.good("POST", "/v1/simulate", odd)  # the simulation says what is wrong with it
            assert given[-1][0]["rules"][-1] in (odd, "no rule")
        await admin.good("POST", "/v1/simulate?whole=true", {"rules": []})
        assert given[-1][0] == {"rules": []}
        for wrong in ("seconds=59", "seconds=86401", "subjects=0", "whole=yes"):
            problem_of(await admin.ask("POST", f"/v1/simulate?{wrong}", {}), 422)

    with_admin(database_url, test)


def test_simulations_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One runs at a time, for so long at most, and what a failed one said is told."""
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nimport sys, time\ntime.sleep(0.5)\nsys.exit('no events')\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))

    asked = 0

    async def rule_sets() -> tuple[dict[str, object], dict[str, object]]:
        nonlocal asked
        asked += 1
        return {}, {}

    async def status(simulator: SimulatorProcess) -> tuple[int, str]:
        with pytest.raises(HttpProblem) as raised:
            await simulator(rule_sets, 60, 1)
        return raised.value.status, str(raised.value)

    async def run() -> None:
        simulator = SimulatorProcess({})
        first, second = await asyncio.gather(status(simulator), status(simulator))
        assert (first[0], second[0]) == (422, 409)
        assert "no events" in first[1]
        assert asked == 1, "the one that has to wait costs nothing"
        assert "longer than" in (await status(SimulatorProcess({}, 0.05)))[1]

    asyncio.run(run())


def test_the_decision_api_is_described() -> None:
    """Its description has every endpoint of the decision service, and no other."""
    described = json.loads(static_files()["decision-api.json"].body)
    service = DecisionService(Limiter.open(rules=[]))
    offered = {path: set(methods) - {"HEAD", "ANY"} for path, methods in service._endpoints.items()}
    for path, methods in offered.items():
        found = {method.upper() for method in described["paths"].get(path, {})}
        assert found == (methods or {"GET"}), path
    assert set(described["paths"]) == set(offered)
