"""What is wrong is refused with a sentence for each problem, and nothing is changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.accounts import Accounts

from headgate.adapters.postgres import Database
from headgate.errors import Conflict, InvalidFields

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support.postgres import Postgres

HUGE = 10**400
LONE = "\ud800"
LONG = "x" * 256

# A malformed form for each kind, and the field that the refusal names ("" is the form as a whole).
NO_FORM: list[tuple[Any, str]] = [(None, ""), ([], ""), ("text", ""), (7, ""), (float("nan"), "")]

TIERS: list[tuple[Any, str]] = [
    *NO_FORM,
    ({}, "name"),
    ({"name": None}, "name"),
    ({"name": ""}, "name"),
    ({"name": 7}, "name"),
    ({"name": ["gold"]}, "name"),
    ({"name": "a b"}, "name"),
    ({"name": "góld"}, "name"),
    ({"name": "\uff47\uff4f\uff4c\uff44"}, "name"),
    ({"name": "go\u0301ld"}, "name"),
    ({"name": "gold\x00"}, "name"),
    ({"name": LONE}, "name"),
    ({"name": "-gold"}, "name"),
    ({"name": "g" * 65}, "name"),
    ({"name": "gold", "prize": 1}, "prize"),
    ({"name": "gold", 7: 1}, "[7]"),
    ({"name": "gold", "display_name": ""}, "display_name"),
    ({"name": "gold", "display_name": 7}, "display_name"),
    ({"name": "gold", "display_name": LONG}, "display_name"),
    ({"name": "gold", "display_name": "a\x00b"}, "display_name"),
    ({"name": "gold", "display_name": LONE}, "display_name"),
    ({"name": "gold", "price": -0.01}, "price"),
    ({"name": "gold", "price": "9"}, "price"),
    ({"name": "gold", "price": True}, "price"),
    ({"name": "gold", "price": float("nan")}, "price"),
    ({"name": "gold", "price": float("inf")}, "price"),
    ({"name": "gold", "price": float("-inf")}, "price"),
    ({"name": "gold", "price": HUGE}, "price"),
    ({"name": "gold", "price": 1e13}, "price"),
    ({"name": "gold", "is_default": 1}, "is_default"),
    ({"name": "gold", "is_default": "yes"}, "is_default"),
    ({"name": "gold", "limits": "100/hour"}, "limits"),
    ({"name": "gold", "limits": ["100/hour"]}, "limits"),
    ({"name": "gold", "limits": {f"l{n}": "1/hour" for n in range(1_001)}}, "limits"),
    ({"name": "gold", "limits": {"": "1/hour"}}, "limits['']"),
    ({"name": "gold", "limits": {7: "1/hour"}}, "limits[7]"),
    ({"name": "gold", "limits": {LONE: "1/hour"}}, "limits['\\ud800']"),
    ({"name": "gold", "limits": {"search": "1/hour", "Search": "1/hour"}}, "limits.Search"),
    ({"name": "gold", "limits": {"search": None}}, "limits.search"),
    ({"name": "gold", "limits": {"search": []}}, "limits.search"),
    ({"name": "gold", "limits": {"search": 100}}, "limits.search"),
    ({"name": "gold", "limits": {"search": "often"}}, "limits.search"),
    ({"name": "gold", "limits": {"search": "0/hour"}}, "limits.search"),
    ({"name": "gold", "limits": {"search": "-1/hour"}}, "limits.search"),
    ({"name": "gold", "limits": {"search": f"{HUGE}/hour"}}, "limits.search"),
    ({"name": "gold", "limits": {"search": "1/hour\x00"}}, "limits.search"),
    ({"name": "gold", "limits": {"search": ["1/hour", "unlimited"]}}, "limits.search"),
    ({"name": "gold", "limits": {"search": ["1/hour"] * 9}}, "limits.search"),
    ({"name": "gold", "limits": {"search": ["1/hour", "1/fortnight"]}}, "limits.search[1]"),
]

USERS: list[tuple[Any, str]] = [
    *NO_FORM,
    ({}, "id"),
    ({"id": ""}, "id"),
    ({"id": 7}, "id"),
    ({"id": {"a": 1}}, "id"),
    ({"id": LONG}, "id"),
    ({"id": "u\x00"}, "id"),
    ({"id": "u\x1b[2J"}, "id"),
    ({"id": LONE}, "id"),
    ({"id": "u", "name": "U"}, "name"),
    ({"id": "u", "requests_today": 0}, "requests_today"),
    ({"id": "u", "tier": ""}, "tier"),
    ({"id": "u", "tier": 7}, "tier"),
    ({"id": "u", "tier": "gold"}, "tier"),
    ({"id": "u", "tier": "FREE"}, "tier"),
    ({"id": "u", "tier": "\uff46\uff52\uff45\uff45"}, "tier"),
    ({"id": "u", "tier": "free\x00"}, "tier"),
    ({"id": "u", "tier": LONE}, "tier"),
    ({"id": "u", "overrides": []}, "overrides"),
    ({"id": "u", "overrides": "1/hour"}, "overrides"),
    ({"id": "u", "overrides": {f"r{n}": "1/hour" for n in range(101)}}, "overrides"),
    ({"id": "u", "overrides": {"none": "1/hour"}}, "overrides.none"),
    ({"id": "u", "overrides": {"Search": "1/hour"}}, "overrides.Search"),
    ({"id": "u", "overrides": {LONE: "1/hour"}}, "overrides['\\ud800']"),
    ({"id": "u", "overrides": {"se\x00arch": "1/hour"}}, "overrides['se\\x00arch']"),
    ({"id": "u", "overrides": {7: "1/hour"}}, "overrides[7]"),
    ({"id": "u", "overrides": {"staff": "1/hour"}}, "overrides.staff"),
    ({"id": "u", "overrides": {"search": "3 concurrent"}}, "overrides.search"),
    ({"id": "u", "overrides": {"slots": "3/hour"}}, "overrides.slots"),
    ({"id": "u", "overrides": {"search": "tier:search"}}, "overrides.search"),
    ({"id": "u", "overrides": {"search": ["1/hour", "2/hour"]}}, "overrides.search"),
    ({"id": "u", "overrides": {"search": {"limits": "1/hour"}}}, "overrides.search"),
    ({"id": "u", "overrides": {"search": "1/calendar day tz Mars/Phobos"}}, "overrides.search"),
]

KEYS: list[tuple[Any, str]] = [
    *NO_FORM,
    ({"secret": "mine"}, "secret"),
    ({"hash": "0" * 64}, "hash"),
    ({"name": ""}, "name"),
    ({"name": 7}, "name"),
    ({"name": LONG}, "name"),
    ({"name": "a\x00"}, "name"),
    ({"user": "unknown"}, "user"),
    ({"user": 7}, "user"),
    ({"user": "u\x00"}, "user"),
    ({"user": LONE}, "user"),
    ({"user": "KNOWN"}, "user"),
    ({"tenant": LONG}, "tenant"),
    ({"tenant": []}, "tenant"),
    ({"tenant": LONE}, "tenant"),
    ({"tier": "gold"}, "tier"),
    ({"tier": "Free"}, "tier"),
    ({"tier": {}}, "tier"),
    ({"limits": "1/hour"}, "limits"),
    ({"limits": {"none": "1/hour"}}, "limits.none"),
    ({"limits": {"staff": "1/hour"}}, "limits.staff"),
    ({"limits": {"slots": "1/hour"}}, "limits.slots"),
    ({"limits": {"search": "1/hour burst 5"}}, "limits.search"),
    ({"limits": {"search": None}}, "limits.search"),
    ({"expires_at": 4102444800}, "expires_at"),
    ({"expires_at": ""}, "expires_at"),
    ({"expires_at": "tomorrow"}, "expires_at"),
    ({"expires_at": "2100-01-01"}, "expires_at"),
    ({"expires_at": "2100-01-01T00:00:00"}, "expires_at"),
    ({"expires_at": "2100-02-30T00:00:00Z"}, "expires_at"),
    ({"expires_at": "2100-01-01T25:00:00Z"}, "expires_at"),
    ({"expires_at": "2100-01-01T00:00:00+99:00"}, "expires_at"),
    ({"expires_at": "99999-01-01T00:00:00Z"}, "expires_at"),
    ({"expires_at": "9999-12-31T23:59:59-12:00"}, "expires_at"),
    ({"expires_at": "0001-01-01T00:00:00+12:00"}, "expires_at"),
    ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ({"expires_at": "\uff12\uff11\uff10\uff10-01-01T00:00:00Z"}, "expires_at"),
    ({"expires_at": "2100-01-01T00:00:00Z\x00"}, "expires_at"),
    ({"expires_at": "infinity"}, "expires_at"),
]

BLOCKS: list[tuple[Any, str]] = [
    *NO_FORM,
    ({}, ""),
    ({"reason": "spam"}, ""),
    ({"user": "u", "network": "10.0.0.0/8"}, ""),
    ({"user": "u", "ip": "10.0.0.1"}, "ip"),
    ({"user": ""}, "user"),
    ({"user": 7}, "user"),
    ({"user": LONG}, "user"),
    ({"user": "u\x00"}, "user"),
    ({"user": LONE}, "user"),
    ({"api_key": "hg_abc"}, "api_key"),
    ({"api_key": 7}, "api_key"),
    ({"api_key": "00000000-0000-0000-0000-000000000000"}, "api_key"),
    ({"network": 7}, "network"),
    ({"network": ""}, "network"),
    ({"network": "home"}, "network"),
    ({"network": "10.0.0.1/8"}, "network"),
    ({"network": "10.0.0.0/33"}, "network"),
    ({"network": "10.0.0"}, "network"),
    ({"network": "256.0.0.1"}, "network"),
    ({"network": "010.0.0.1"}, "network"),
    ({"network": "\uff11\uff10.0.0.0/8"}, "network"),
    ({"network": "2001:db8::1/32"}, "network"),
    ({"network": "2001:db8::/129"}, "network"),
    ({"network": "fe80::1%eth0"}, "network"),
    ({"network": "::ffff:0:0/96"}, "network"),
    ({"network": "10.0.0.0/8\x00"}, "network"),
    ({"network": "1" * 10_000}, "network"),
    ({"network": ["10.0.0.0/8"]}, "network"),
    ({"user": "u", "reason": "r" * 1_001}, "reason"),
    ({"user": "u", "reason": 7}, "reason"),
    ({"user": "u", "reason": "\x00"}, "reason"),
    ({"user": "u", "until": 4102444800}, "until"),
    ({"user": "u", "until": float("inf")}, "until"),
    ({"user": "u", "until": "2100-01-01T00:00:00"}, "until"),
    ({"user": "u", "until": "2020-01-01T00:00:00Z"}, "until"),
    ({"user": "u", "until": "99999-01-01T00:00:00Z"}, "until"),
]

TOKENS: list[tuple[Any, str]] = [
    *NO_FORM,
    ({"name": "ci"}, "role"),
    ({"role": "viewer"}, "name"),
    ({"name": "ci", "role": "root"}, "role"),
    ({"name": "ci", "role": ["admin"]}, "role"),
    ({"name": "c i", "role": "viewer"}, "name"),
    ({"name": "Bootstrap", "role": "viewer"}, "name"),
    ({"name": "ci", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ({"name": "ci", "role": "viewer", "secret": "x"}, "secret"),
]

KINDS = {"tiers": TIERS, "users": USERS, "keys": KEYS, "blocks": BLOCKS, "access": TOKENS}
EACH = [(kind, data, field) for kind, forms in KINDS.items() for data, field in forms]


class Filled:
    """A database with one thing of each kind, on one event loop for all tests here: there are many."""

    def __init__(self, url: str, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.database = Database(url)
        self.accounts = Accounts(self.database)
        runner.run(self._fill())
        self._before = runner.run(self.accounts.everything())
        self._announced = self.accounts.announced

    async def _fill(self) -> None:
        await self.accounts.add_rules()
        await self.accounts.users.create({"id": "known", "tier": "free", "overrides": {"search": "7/hour"}}, "me")
        await self.accounts.keys.create({"user": "known"}, "me")
        await self.accounts.blocks.create({"user": "known"}, "me")

    def try_in_vain(self, test: Callable[[Accounts], Coroutine[None, None, None]]) -> None:
        """Run a test that must not change anything nor announce anything."""
        self._runner.run(test(self.accounts))
        assert self._runner.run(self.accounts.everything()) == self._before
        assert self.accounts.announced == self._announced


@pytest.fixture(scope="module")
def filled(postgres: Postgres) -> Iterator[Filled]:
    """The one for all tests here."""
    with asyncio.Runner() as runner:
        made = Filled(postgres.new_database(), runner)
        yield made
        runner.run(made.database.close())


@pytest.mark.parametrize(("kind", "data", "field"), EACH, ids=[f"{kind}-{n}" for n, (kind, _, _) in enumerate(EACH)])
def test_a_malformed_form_is_refused(filled: Filled, kind: str, data: object, field: str) -> None:
    """With a sentence about the field that is wrong; no table changes, and nothing is announced."""

    async def test(accounts: Accounts) -> None:
        with pytest.raises(InvalidFields) as caught:
            await getattr(accounts, kind).create(data, "me")
        assert field in [problem.field for problem in caught.value.problems]
        for problem in caught.value.problems:
            assert len(problem.message) > 8
            assert str(problem).isprintable()
            assert len(str(problem)) < 600
        str(caught.value).encode()

    filled.try_in_vain(test)


def _changeable() -> Iterator[tuple[str, Any]]:
    """Forms that are as wrong for something that is there: the same, without what only a new one has."""
    for kind, data, field in EACH:
        if kind != "access" and field not in {"name", "id", "user", "api_key", "network"} and data:
            new_only = {"tiers": ("name",), "users": ("id",), "keys": ("user",), "blocks": ("user",)}[kind]
            yield kind, {k: v for k, v in data.items() if k not in new_only} if isinstance(data, dict) else data


async def _one(accounts: Accounts, kind: str) -> str:
    """What there is of a kind."""
    if kind == "tiers":
        return "free"
    (there,) = await getattr(accounts, kind).list()
    return str(there.id)


@pytest.mark.parametrize("kind", ["tiers", "users", "keys", "blocks"])
def test_nothing_becomes_what_a_malformed_form_says(filled: Filled, kind: str) -> None:
    """What is refused of something new is refused of something old."""

    async def test(accounts: Accounts) -> None:
        there = await _one(accounts, kind)
        tried = [data for of_kind, data in _changeable() if of_kind == kind and data != {"reason": "spam"}]
        assert len(tried) > 8
        for data in tried:
            with pytest.raises(InvalidFields):
                await getattr(accounts, kind).replace(there, data, "me")

    filled.try_in_vain(test)


@pytest.mark.parametrize("name", ["free", "FREE", "Premium"])
def test_a_name_that_differs_only_by_case_is_taken(filled: Filled, name: str) -> None:
    """Two tiers that people cannot tell apart are one."""

    async def test(accounts: Accounts) -> None:
        with pytest.raises(Conflict, match=f"there is a tier '{name.lower()}' already"):
            await accounts.tiers.create({"name": name}, "me")

    filled.try_in_vain(test)


def test_there_are_many_poisoned_forms() -> None:
    """At least a dozen for each kind, and 80 altogether."""
    assert len(EACH) >= 80
    assert all(len(forms) >= 12 for forms in KINDS.values())


def test_all_that_is_wrong_is_told_at_once(filled: Filled) -> None:
    """One answer names every field that is wrong."""

    async def test(accounts: Accounts) -> None:
        with pytest.raises(InvalidFields) as caught:
            await accounts.keys.create(
                {"nam": 1, "name": 7, "user": "x", "tier": "y", "limits": {"a": "b"}, "expires_at": "c"}, "me"
            )
        fields = {problem.field for problem in caught.value.problems}
        assert fields == {"nam", "name", "user", "tier", "limits.a", "expires_at"}

    filled.try_in_vain(test)
