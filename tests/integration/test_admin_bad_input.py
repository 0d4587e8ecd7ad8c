"""Every field of every body of the admin API, with invalid values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.admin import SEARCH, problem_of, with_admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.admin import Admin

WRONG_TEXTS: tuple[object, ...] = (7, 1.5, True, [], ["a"], {}, "", "x" * 300, "a\0b", "\x07")
WRONG_NAMES: tuple[object, ...] = (*WRONG_TEXTS, "a b", "ümlaut", "-first", "a/b", "a\u0301")
WRONG_LIMITS: tuple[object, ...] = (
    *(7, True, [], {}, "", "often", "0/second", "-1/minute", "1/fortnight", "5", "/minute", ["5/minute", 7], [[]]),
    *("9" * 300, ["1/second"] * 40, "1e9/second", "5/minute burst", "unlimited burst 5", "tier:search"),
)
WRONG_NAMED_LIMITS: tuple[object, ...] = (7, [], "5/minute", *({"search": limits} for limits in WRONG_LIMITS))
WRONG_TIMES: tuple[object, ...] = (
    *(7, True, "", "soon", "2026-01-01", "2020-01-01T00:00:00Z", "9999-99-99T00:00:00Z", "2090-01-01T00:00:00"),
)
WRONG_TRUTHS: tuple[object, ...] = ("true", 1, 0, "yes", [])
WRONG_WHOLES: tuple[object, ...] = ("1", 1.5, True, -1, 10**30, [], {})
UNKNOWN_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def _bodies(good: dict[str, Any], **wrong: tuple[object, ...]) -> Iterator[dict[str, Any]]:
    """The valid body with each of its members invalid in each way, one at a time, and with one member too many."""
    for member, values in wrong.items():
        for value in values:
            yield good | {member: value}
    yield good | {"colour": "red"}
    yield good | {next(iter(wrong)).upper(): None}


def _poisons() -> Iterator[tuple[str, str, object]]:
    tier: dict[str, tuple[object, ...]] = {
        "display_name": WRONG_TEXTS,
        "price": ("1", True, -1, 10**13, [], "NaN"),
        "limits": WRONG_NAMED_LIMITS,
        "is_default": WRONG_TRUTHS,
    }
    user: dict[str, tuple[object, ...]] = {
        "tier": (*WRONG_TEXTS, "unknown", "FREE"),
        "overrides": (*WRONG_NAMED_LIMITS, {"unknown": "5/minute"}, {"SEARCH": "5/minute"}, {"gate": "5/minute"}),
    }
    key: dict[str, tuple[object, ...]] = {
        "name": WRONG_TEXTS,
        "tenant": WRONG_TEXTS,
        "tier": (*WRONG_TEXTS, "unknown"),
        "limits": (*WRONG_NAMED_LIMITS, {"unknown": "5/minute"}),
        "expires_at": WRONG_TIMES,
    }
    block: dict[str, tuple[object, ...]] = {"reason": (7, [], "", "x" * 1_001, "\0"), "until": WRONG_TIMES}
    subjects: list[tuple[str, str, dict[str, Any], dict[str, tuple[object, ...]]]] = [
        ("POST", "/v1/tiers", {"name": "gold"}, {"name": WRONG_NAMES, **tier}),
        ("PUT", "/v1/tiers/free", {}, tier),
        ("POST", "/v1/users", {"id": "u2"}, {"id": (7, True, [], {}, "", "x" * 256, "a\0b", "\x07"), **user}),
        ("PUT", "/v1/users/u1", {}, user),
        ("PUT", "/v1/users/u1/overrides/search", {}, {"limits": WRONG_LIMITS}),
        ("POST", "/v1/keys", {}, {"user": (7, [], "", "unknown", "x" * 256), **key}),
        ("PUT", "/v1/keys/KEY", {}, {**key, "user": ("u1",)}),
        ("POST", "/v1/keys/KEY/rotate", {}, {"overlap_seconds": WRONG_WHOLES}),
        (
            *("POST", "/v1/blocks", {}),
            {
                "user": (7, [], "", "x" * 256, "\0"),
                "api_key": (7, "", "unknown", UNKNOWN_ID, "x" * 300),
                "network": (
                    7,
                    "",
                    "10.0.0.1/8",
                    "10.0.0.0/33",
                    "300.1.1.1",
                    "::1/129",
                    "fe80::1%eth0",
                    "example.com",
                    "10",
                ),
            },
        ),
        ("POST", "/v1/blocks", {"user": "u9"}, {**block, "network": ("10.0.0.0/8",)}),
        ("PUT", "/v1/blocks/BLOCK", {}, {**block, "user": ("u1",), "network": ("10.0.0.0/8",)}),
        (
            *("POST", "/v1/tokens", {"name": "new", "role": "viewer"}),
            {"name": WRONG_NAMES, "role": ("root", "ADMIN", "", 7, None, []), "expires_at": WRONG_TIMES},
        ),
        ("POST", "/v1/rules/search/rollback", {}, {"change": (*WRONG_WHOLES, 0, None)}),
        ("POST", "/v1/rules/search/rename", {}, {"name": (7, "", None, "no name", "x" * 65, [])}),
        (
            *("POST", "/v1/explain", {}),
            {
                **dict.fromkeys(
                    ("user", "tenant", "api_key", "ip", "tier", "method", "path", "route"), (7, [], {}, True)
                ),
                "cost": (*WRONG_WHOLES,),
                "attributes": (7, [], "x", {"a": 1}, {"a": None}, {"a": {}}),
            },
        ),
    ]
    for method, path, good, wrong in subjects:
        for body in _bodies(good, **wrong):
            yield method, path, body
    for path, good in (
        ("/v1/rules", {}),
        ("/v1/tiers", {"price": 1}),
        ("/v1/users", {"tier": None}),
        ("/v1/tokens", {}),
    ):
        yield "POST", path, good
    yield from _poisoned_rules()


def _poisoned_rules() -> Iterator[tuple[str, str, object]]:
    wrong: dict[str, tuple[object, ...]] = {
        "name": (*WRONG_NAMES, None),
        "limits": (*WRONG_LIMITS[:-1], "tier:", "tier:unknown"),
        "per": (7, [], ["unknown"], "attribute:", ["user", 7]),
        "match": (
            *(7, [], {"colour": "red"}, {"endpoints": 7}, {"endpoints": ["no-slash"]}, {"methods": ["G T"]}),
            *({"ip_ranges": ["10.0.0.1/8"]}, {"ip_ranges": ["x"]}, {"tiers": ["unknown"]}, {"attributes": {"a": 7}}),
        ),
        "algorithm": (7, "magic", []),
        "action": (7, "explode"),
        "cost": ("x", -1, {"GET": "x"}, []),
        "priority": ("1", 1.5, True, 10**30),
        "on_store_error": ("panic", 7),
        "spread": ("wide", 7, {"shards": "x"}),
        "sample": (2, -1, "x"),
        "response": (7, {"status": 99}, {"status": "x"}, {"colour": "red"}),
        "enabled": WRONG_TRUTHS,
        "max_delay": ("x", -1, []),
    }
    for body in _bodies(SEARCH | {"name": "second"}, **wrong):
        yield "POST", "/v1/rules", body
        yield "POST", "/v1/rules?draft=true", body
        yield "POST", "/v1/ruleset/apply", {"rules": [SEARCH, body]}
        yield "POST", "/v1/ruleset/sync", {"rules": [body]}
    rule_sets: tuple[dict[str, Any], ...] = (
        *({"rules": 7}, {"rules": {}}, {"rules": [7]}, {"rules": [SEARCH, SEARCH]}, {"colour": 1}),
        *({"rules": [SEARCH, SEARCH | {"name": "Search"}]}, {"tiers": 7}, {"tiers": {"a b": {}}}),
        *({"tiers": {"x": 7}}, {"tiers": {"x": {"limits": {"api": "often"}}}}, {"default_tier": "unknown"}),
    )
    for rule_set in rule_sets:
        yield "POST", "/v1/ruleset/apply", rule_set
        yield "POST", "/v1/ruleset/sync", rule_set
        yield "POST", "/v1/ruleset/plan", rule_set


def test_nothing_that_is_wrong_is_stored(database_url: str) -> None:
    """Hundreds of invalid bodies: each is refused with a message, and no row changes."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/rules", SEARCH)
        await admin.good("POST", "/v1/rules", {"name": "gate", "action": "allow", "match": {"methods": ["HEAD"]}})
        await admin.good("POST", "/v1/tiers", {"name": "free"})
        await admin.good("POST", "/v1/users", {"id": "u1"})
        key = (await admin.good("POST", "/v1/keys", {"user": "u1"}))["key"]["id"]
        block = (await admin.good("POST", "/v1/blocks", {"user": "u1"}))["id"]
        before = await admin.value(_EVERYTHING), admin.parts.limiter.snapshots.current.number
        count = 0
        for method, path, body in _poisons():
            address = path.replace("KEY", key).replace("BLOCK", block)
            answer = await admin.ask(method, address, body)
            said = (method, path, str(body)[:200], answer.text)
            assert answer.status_code in {400, 404, 409, 422}, said
            document = problem_of(answer, answer.status_code)
            assert answer.status_code != 422 or all(each["message"] for each in document["problems"]), said
            assert not _IN_FOREIGN_WORDS & set(document["message"].lower().split()), said
            count += 1
        assert count >= 600
        assert (await admin.value(_EVERYTHING), admin.parts.limiter.snapshots.current.number) == before

    with_admin(database_url, test)


_IN_FOREIGN_WORDS = {"pydantic", "input", "asyncpg", "constraint", "str", "int", "dict", "none,"}
_EVERYTHING = """
SELECT json_build_array(
    (SELECT json_agg(t ORDER BY name) FROM tiers t), (SELECT json_agg(t ORDER BY name) FROM rules t),
    (SELECT json_agg(t ORDER BY id) FROM users t), (SELECT json_agg(t ORDER BY user_id) FROM overrides t),
    (SELECT json_agg(t ORDER BY id) FROM api_keys t), (SELECT json_agg(t ORDER BY id) FROM blocks t),
    (SELECT json_agg(t ORDER BY id) FROM tokens t), (SELECT count(*) FROM changes)
)::text
"""
