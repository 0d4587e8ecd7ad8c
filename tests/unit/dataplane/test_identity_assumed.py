"""Callers whose records cannot be read: what is assumed of them, and that the verdict says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.fake_records import Set

from headgate import Limiter, Request
from headgate.core.api_key import hash_of, new_api_key
from headgate.dataplane.identity import Identity, UnauthenticatedCall
from headgate.setting_values import OnUnknownIdentity

KEY = new_api_key(b"k" * 32)
RULES: dict[str, Any] = {
    "tiers": {"free": {"limits": {"api": "10/hour"}}, "pro": {"limits": {"api": "1000/hour"}}},
    "default_tier": "free",
    "rules": [{"name": "api", "per": "user", "limits": "tier:api"}],
}
LAST_KNOWN, DEFAULT, STATED = OnUnknownIdentity


class People(Set):
    """An identity that knows the user u1 and a key of u2, and then loses its database."""

    def __init__(self, on_unknown: OnUnknownIdentity = LAST_KNOWN) -> None:
        super().__init__(keeps_last_known=on_unknown is LAST_KNOWN)
        self.source.users_on_record = {"u1": {"tier": "pro", "overrides": {"api": ["7/hour"]}}, "u2": {"tier": None}}
        self.source.add_key(hash_of(KEY), user="u2", tier="pro")
        self.identity = Identity(self.clock, records=self.records, on_unknown=on_unknown)

    async def met(self, *requests: Request) -> None:
        """Have these read, and lose the database."""
        for request in requests:
            assert not (await self.identity.identify_trusted(request)).assumed
        self.source.away = True
        self.advance(3_600)


@pytest.mark.parametrize(
    ("on_unknown", "stated", "tier"),
    [
        (LAST_KNOWN, "gold", None),
        (DEFAULT, "gold", None),
        (STATED, "gold", "gold"),
        (STATED, None, None),
    ],
)
def test_a_user_of_whom_nothing_is_known(on_unknown: OnUnknownIdentity, stated: str | None, tier: str | None) -> None:
    """Gets the stated tier if the settings say so, else the default one, and is marked and counted."""

    async def run() -> None:
        people = People(on_unknown)
        people.source.away = True
        for number in range(1, 4):
            assert await people.identity.identify_trusted(Request(user="u1", tier=stated)) == Request(
                user="u1", tier=tier, assumed=True
            )
            assert people.identity.assumed == number
        await people.identity.close()

    asyncio.run(run())


@pytest.mark.parametrize(("on_unknown", "tier"), [(LAST_KNOWN, "pro"), (DEFAULT, None), (STATED, "gold")])
def test_a_user_who_was_known(on_unknown: OnUnknownIdentity, tier: str | None) -> None:
    """Keeps tier and limits of its own by its last record, or gets what the settings say in its place."""

    async def run() -> None:
        people = People(on_unknown)
        await people.met(Request(user="u1"))
        found = await people.identity.identify_trusted(Request(user="u1", tier="gold"))
        assert (found.assumed, found.tier) == (True, tier)
        assert (found.limits is not None) == (on_unknown is LAST_KNOWN)
        await people.identity.close()

    asyncio.run(run())


def test_who_was_known_to_have_no_record_or_no_tier_is_as_stated() -> None:
    """The last thing known is that nothing stands against the stated tier."""

    async def run() -> None:
        people = People()
        await people.met(Request(user="u2"), Request(user="u9"))
        for user in ("u2", "u9"):
            found = await people.identity.identify_trusted(Request(user=user, tier="gold"))
            assert found == Request(user=user, tier="gold", assumed=True)
        await people.identity.close()

    asyncio.run(run())


@pytest.mark.parametrize("on_unknown", OnUnknownIdentity)
def test_a_key_is_never_assumed_to_be_sound(on_unknown: OnUnknownIdentity) -> None:
    """Without any record its bearer is counted by address, as with a key that is unknown; and it is marked."""

    async def run() -> None:
        people = People(on_unknown)
        people.source.away = True
        request = await people.identity.identify_trusted(Request(api_key=KEY, ip="203.0.113.9"))
        assert request == Request(ip="203.0.113.9", assumed=True)
        call = UnauthenticatedCall("GET", "/x", peer="203.0.113.9:80", api_key=KEY)
        assert await people.identity.identify_call(call) == Request(
            ip="203.0.113.9", method="GET", path="/x", assumed=True
        )
        assert not people.identity.refused, "nothing speaks against the key"
        await people.identity.close()

    asyncio.run(run())


def test_a_key_that_was_known_holds_until_it_expires() -> None:
    """By its last record, with its owner and tier; one that is known to be revoked stays so."""

    async def run() -> None:
        people = People()
        people.source.add_key(hash_of(KEY), user="u2", tier="pro", expires=people.clock() / 1e6 + 7_200)
        await people.met(Request(api_key=KEY))
        found = await people.identity.identify_trusted(Request(api_key=KEY))
        assert (found.user, found.api_key, found.tier, found.assumed) == ("u2", "k1", "pro", True)
        people.advance(3_600)
        found = await people.identity.identify_trusted(Request(api_key=KEY))
        assert (found.user, found.api_key, found.tier, found.assumed) == (None, None, None, True)
        assert people.identity.refused == {"expired": 1}
        await people.identity.close()

    asyncio.run(run())


def test_callers_without_a_record_to_read_are_not_marked() -> None:
    """Who is counted by address is known as well as ever."""

    async def run() -> None:
        people = People()
        people.source.away = True
        assert await people.identity.identify_trusted(Request(ip="203.0.113.9")) == Request(ip="203.0.113.9")
        assert people.identity.assumed == 0
        await people.identity.close()

    asyncio.run(run())


def test_the_verdict_says_that_its_caller_is_assumed() -> None:
    """In Python and in JSON, for admissions, refusals, exemptions, blocks and peeks; else the member is not there."""

    async def run() -> None:
        exempt = {"name": "health", "match": {"endpoints": ["/health"]}, "action": "allow"}
        limiter = Limiter.open(rules={**RULES, "rules": [*RULES["rules"], exempt]})
        for assumed in (False, True):
            word = "assumed" if assumed else None
            request = Request(user=f"u-{assumed}", assumed=assumed)
            verdicts = [await limiter.check(request, cost) for cost in (10, 1)]
            verdicts += [await limiter.check(request._replace(path="/health")), await limiter.peek(request)]
            assert [verdict.allowed for verdict in verdicts] == [True, False, True, False]
            for verdict in verdicts:
                assert verdict.identity == word
                assert verdict.as_dict().get("identity") == word
                assert ("identity" in verdict.as_dict()) == assumed

    asyncio.run(run())
