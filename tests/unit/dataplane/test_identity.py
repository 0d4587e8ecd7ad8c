"""Who is asking, from what comes with a request and what is on record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_records import Set
from tests.unit.dataplane.signing import CLAIMS, SECRET, signed

from headgate.core.api_key import hash_of, new_api_key
from headgate.core.request import Request
from headgate.core.units import SECOND
from headgate.dataplane.identity import Identity, UnauthenticatedCall
from headgate.dataplane.jwt_keys import OneKey, key_from_text
from headgate.dataplane.jwt_verifier import Demands, JwtVerifier
from headgate.dataplane.proxies import Proxies
from headgate.setting_values import OnForeignApiKey

KEY = new_api_key(b"k" * 32)
OTHER = new_api_key(b"o" * 32)


class People(Set):
    """An identity that knows the user u1 and a key of u2."""

    def __init__(self, on_foreign: OnForeignApiKey = OnForeignApiKey.ADDRESS, **key: Any) -> None:  # noqa: ANN401 (fields of a key)
        super().__init__()
        self.source.users_on_record = {"u1": {"tier": "pro", "overrides": {"r": ["1/hour"]}}, "u2": {"tier": "basic"}}
        self.source.add_key(hash_of(KEY), **{"user": "u2", "tenant": "t2", **key})
        demands = Demands(("HS256",), tenant_claim="org", tier_claim="plan")
        tokens = JwtVerifier(OneKey(key_from_text(SECRET, ["HS256"])), demands, self.clock)
        self.identity = Identity(
            self.clock,
            tokens=tokens,
            records=self.records,
            proxies=Proxies(["10.0.0.0/8"]),
            api_key_header="X-Key",
            on_foreign_key=on_foreign,
        )

    def identify_trusted(self, **members: Any) -> Request:  # noqa: ANN401 (fields of a request)
        async def run() -> Request:
            await self.identity.start()
            request = await self.identity.identify_trusted(Request(**members))
            await self.identity.close()
            return request

        return asyncio.run(run())

    def identify_call(self, **members: Any) -> Request:  # noqa: ANN401 (fields of a call)
        async def run() -> Request:
            request = await self.identity.identify_call(
                UnauthenticatedCall("GET", "/x", peer="203.0.113.9:80", **members)
            )
            await self.identity.close()
            return request

        return asyncio.run(run())


def bearer(**claims: object) -> str:
    return f"Bearer {signed({**CLAIMS, **claims})}"


def test_a_stated_user_gets_the_tier_and_limits_on_record() -> None:
    """What a trusted caller says of the tier holds only for users who are not on record with one."""
    request = People().identify_trusted(user="u1", tier="basic", path="/x")
    assert (request.user, request.tier, request.path) == ("u1", "pro", "/x")
    assert request.limits is not None
    assert [list(each.by_rule) for each in request.limits] == [["r"], []]
    assert People().identify_trusted(user="u9", tier="basic") == Request(user="u9", tier="basic")
    assert People().identify_trusted() == Request()


def test_a_stated_key_of_ours_is_resolved() -> None:
    """It becomes the key's id, and brings user and tenant; the key itself goes no further."""
    request = People(limits={"r": ["2/hour"]}).identify_trusted(api_key=KEY, user="u1", tier="stated")
    assert (request.api_key, request.user, request.tenant, request.tier) == ("k1", "u2", "t2", "basic")
    assert request.limits is not None
    assert [list(each.by_rule) for each in request.limits] == [[], ["r"]]
    assert KEY not in repr(request)


def test_a_key_without_an_owner_leaves_what_was_stated() -> None:
    """The user and tenant that the caller states hold where the key says nothing."""
    request = People(user=None, tenant=None, tier="gold").identify_trusted(api_key=KEY, user="u1", tenant="t1")
    assert (request.api_key, request.user, request.tenant, request.tier) == ("k1", "u1", "t1", "gold")


@pytest.mark.parametrize(
    ("members", "reason"),
    [({"revoked": True}, "revoked"), ({"expires": 0}, "expired"), ({"hash": "00"}, "unknown")],
)
def test_a_stated_key_that_does_not_hold_is_nobodys(members: dict[str, Any], reason: str) -> None:
    """A revoked, expired or unknown key has no counter of its own, or inventing keys would be a way around limits."""
    people = People(**members)
    assert people.identify_trusted(api_key=KEY, ip="203.0.113.9") == Request(ip="203.0.113.9")
    assert people.identity.refused == {reason: 1}


def test_a_key_holds_until_it_expires() -> None:
    """Up to that moment, and not after it."""
    people = People()
    people.source.add_key(hash_of(KEY), expires=people.clock() / SECOND + 1)
    assert people.identify_trusted(api_key=KEY).api_key == "k1"
    people.advance(1)
    assert people.identify_trusted(api_key=KEY).api_key is None


@pytest.mark.parametrize("text", [f"{KEY} ", f" {KEY}", KEY[:-1], KEY.upper(), "hg_x", "partner-7", "\ud800", " "])
def test_a_stated_key_that_is_malformed_is_left_out(text: str) -> None:
    """Form and checksum are tested first; nothing that fails has a counter of its own."""
    people = People()
    people.source.asked.clear()
    assert people.identify_trusted(api_key=text, ip="203.0.113.9") == Request(ip="203.0.113.9")
    assert people.identity.refused == {"malformed": 1}
    assert set(people.source.asked) == {bytes(32).hex()}, "only the probe of the start"


def test_a_stated_name_of_a_key_stays_where_foreign_keys_count() -> None:
    """Then what is nothing like a key of ours is the caller's own name for one; without records, everything is."""
    people = People(on_foreign=OnForeignApiKey.COUNT)
    assert people.identify_trusted(api_key="partner-7") == Request(api_key="partner-7")
    assert people.identify_trusted(api_key=f"{KEY} ") == Request()
    assert people.identify_trusted(api_key=KEY).api_key == "k1"
    identity = Identity(lambda: 0)
    assert asyncio.run(identity.identify_trusted(Request(api_key=KEY, user="u1"))) == Request(api_key=KEY, user="u1")
    assert asyncio.run(identity.identify_trusted(Request(user="u1"))) == Request(user="u1")


def test_names_that_an_application_vouches_for_count() -> None:
    """What the `identify` of an application returns is its own name for a key; what is malformed is still left out."""
    people = People()

    async def run(key: str) -> str | None:
        return (await people.identity.identify_by_program(Request(api_key=key, ip="203.0.113.9"))).api_key

    assert [asyncio.run(run(key)) for key in ("partner-7", KEY, KEY[:-1])] == ["partner-7", "k1", None]


def test_foreign_keys_can_count_by_address_without_records_too() -> None:
    """Then a service without a database gives no stated key a counter of its own; by default each has one."""
    request = Request(api_key="partner-7", ip="203.0.113.9")
    strict = Identity(lambda: 0, on_foreign_key=OnForeignApiKey.ADDRESS)
    assert asyncio.run(strict.identify_trusted(request)) == Request(ip="203.0.113.9")
    assert asyncio.run(strict.identify_trusted(Request(user="u1"))) == Request(user="u1")
    assert asyncio.run(Identity(lambda: 0).identify_trusted(request)) == request


@pytest.mark.parametrize(("members", "expected"), [({}, ("k1", "u2", "t2")), ({"revoked": True}, (None, "u9", None))])
def test_a_key_can_be_named_by_its_digest(members: dict[str, Any], expected: tuple[str | None, ...]) -> None:
    """Who knows the id of a key, not the key, learns what its bearer is told; one that is revoked proves nothing."""
    people = People(**members)
    found = asyncio.run(people.identity.with_key(Request(api_key="an id", user="u9"), hash_of(KEY)))
    assert (found.api_key, found.user, found.tenant) == expected
    unknown = Request(api_key="an id")
    assert asyncio.run(Identity(lambda: 0).with_key(unknown, hash_of(KEY))) == unknown


def test_the_public_name_of_a_key_is_not_the_key() -> None:
    """Names of keys can be read in events; who states one does not use up the limit of that key."""
    name = f"sha256:{'0' * 32}"
    identity = Identity(lambda: 0)
    for stated in (
        asyncio.run(identity.identify_trusted(Request(api_key=name))),
        People(on_foreign=OnForeignApiKey.COUNT).identify_trusted(api_key=name),
    ):
        assert (stated.api_key or "").startswith("sha256:")
        assert stated.api_key != name


def test_a_token_says_who_calls() -> None:
    """User, tenant and tier come from the claims, and the tier on record comes before the claimed one."""
    request = People().identify_call(authorization=bearer(sub="u7", org="t7", plan="gold"))
    assert request == Request("u7", "t7", None, "203.0.113.9", "gold", "GET", "/x")
    request = People().identify_call(authorization=bearer(sub="u1", plan="gold"))
    assert (request.user, request.tier) == ("u1", "pro")


def test_a_key_says_who_calls() -> None:
    """From its header, or as a bearer's token."""
    for given in ({"api_key": KEY}, {"authorization": f"Bearer {KEY}"}, {"authorization": f"bearer  {KEY} "}):
        request = People().identify_call(**given)
        assert request == Request("u2", "t2", "k1", "203.0.113.9", "basic", "GET", "/x"), given


def test_a_token_comes_before_a_key() -> None:
    """With both, the token says who it is and the key what it is counted under; the key's tier comes first."""
    request = People(tier="gold").identify_call(authorization=bearer(sub="u1"), api_key=KEY)
    assert (request.user, request.tenant, request.api_key, request.tier) == ("u1", "t2", "k1", "gold")


@pytest.mark.parametrize(
    "given",
    [
        {"authorization": "Bearer nonsense"},
        {"authorization": "Bearer "},
        {"authorization": "Basic dTE6eA=="},
        {"authorization": bearer(exp=1)},
        {"authorization": f"Bearer {OTHER}"},
        {"api_key": OTHER},
        {"api_key": "partner-7"},
        {"api_key": ""},
    ],
)
def test_credentials_that_prove_nothing_leave_the_address(given: dict[str, str]) -> None:
    """A caller that presents something unsound, unknown or malformed is counted by address."""
    assert People().identify_call(**given) == Request(None, None, None, "203.0.113.9", None, "GET", "/x")


def test_the_reasons_are_counted() -> None:
    """Why keys and tokens were not believed can be looked up."""
    people = People()
    people.identify_call(api_key="partner-7")
    people.identify_call(api_key=OTHER, authorization=bearer(exp=1))
    assert people.identity.refused == {"malformed": 1, "unknown": 1}
    assert people.identity.tokens is not None
    assert people.identity.tokens.refused == {"expired": 1}


def test_the_address_comes_through_trusted_proxies() -> None:
    """A proxy that is trusted says who called it."""
    people = People()

    async def run() -> list[str | None]:
        calls = [
            UnauthenticatedCall("GET", "/", peer, "198.51.100.1", "for=1.1.1.1")
            for peer in ("10.0.0.1:80", "192.0.2.1:80")
        ]
        return [(await people.identity.identify_call(call)).ip for call in calls]

    assert asyncio.run(run()) == ["198.51.100.1", "192.0.2.1"]


def test_without_anything_set_up_there_is_the_address() -> None:
    """Tokens and keys mean nothing where they cannot be verified."""

    async def run() -> Request:
        identity = Identity(lambda: 0)
        await identity.start()
        identity.forget(["*"])
        request = await identity.identify_call(
            UnauthenticatedCall("GET", "/", "203.0.113.9:1", None, None, bearer(), KEY)
        )
        await identity.close()
        return request

    assert asyncio.run(run()) == Request(ip="203.0.113.9", method="GET", path="/")


def test_what_has_changed_is_looked_up_again() -> None:
    """A tier that was changed and announced holds for the next request."""
    people = People()

    async def run() -> list[str | None]:
        before = await people.identity.identify_trusted(Request(user="u2"))
        people.source.users_on_record["u2"] = {"tier": "gold"}
        people.cache.values.clear()
        people.identity.forget(["user:u2"])
        return [before.tier, (await people.identity.identify_trusted(Request(user="u2"))).tier]

    assert asyncio.run(run()) == ["basic", "gold"]


def test_a_start_goes_on_without_a_database() -> None:
    """The first connection is made at once, if it can be."""
    people = People()
    for people.source.away in (False, True):
        people.source.asked.clear()
        people.identify_trusted(user="u1")
        assert people.source.asked[0] == bytes(32).hex()
