"""Keys that change while tokens are verified."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.unit.dataplane.signing import CLAIMS, jwk, private_key, signed

from headgate.dataplane.jwt_keys import KeySet
from headgate.dataplane.jwt_verifier import Bearer, Demands, JwtVerifier, Refusal
from headgate.testing import FakeClock


class Issuer:
    """An issuer that publishes keys, and counts how often they are asked for."""

    def __init__(self, *kids: str) -> None:
        self.publish(*kids)
        self.asked = 0
        self.trouble: Exception | None = None
        self.slow: asyncio.Event | None = None

    def publish(self, *kids: str, **members: object) -> None:
        self.document: Any = {"keys": [jwk(f"P-256:{kid}", "ES256", kid=kid, **members) for kid in kids]}

    async def fetch(self) -> bytes:
        self.asked += 1
        if self.slow is not None:
            await self.slow.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.document if isinstance(self.document, bytes) else json.dumps(self.document).encode()


def token(kid: str | None, user: str = "u1", key: str | None = None) -> str:
    header = {"alg": "ES256"} if kid is None else {"alg": "ES256", "kid": kid}
    return signed({**CLAIMS, "sub": user}, private_key(f"P-256:{key or kid}"), "ES256", header)


async def settled(keys: KeySet) -> None:
    """Until what is fetched in the background is there."""
    assert keys._fetching is not None
    await keys._fetching


def test_keys_are_rotated_without_a_restart() -> None:
    """A token of a new key makes the keys be fetched once; then it is believed, and one of a withdrawn key is not."""

    async def run() -> None:
        clock, issuer = FakeClock(), Issuer("a")
        keys = KeySet(issuer.fetch, ["ES256"], clock)
        tokens = JwtVerifier(keys, Demands(("ES256",)), clock)
        await keys.refresh()
        assert isinstance(tokens.verify(token("a")), Bearer)
        issuer.publish("b")
        clock.advance(seconds=10)
        assert tokens.verify(token("b")) is Refusal.KEY
        await settled(keys)
        assert isinstance(tokens.verify(token("b")), Bearer)
        assert tokens.verify(token("a")) is Refusal.KEY, "although it was verified before"
        assert issuer.asked == 2
        await keys.close()

    asyncio.run(run())


def test_invented_names_of_keys_are_not_asked_about_each_time() -> None:
    """Whatever tokens say, keys are fetched no more than once in ten seconds, and once at a time."""

    async def run() -> None:
        clock, issuer = FakeClock(), Issuer("a")
        keys = KeySet(issuer.fetch, ["ES256"], clock)
        assert keys.find("x", "ES256") is None, "the first is fetched at once"
        for number in range(100):
            assert keys.find(f"x{number}", "ES256") is None
        await settled(keys)
        for number in range(100):
            assert keys.find(f"x{number}", "ES256") is None
        assert issuer.asked == 1
        clock.advance(seconds=10)
        issuer.slow = asyncio.Event()
        for _ in range(3):
            keys.find("x", "ES256")
            await asyncio.sleep(0)
            clock.advance(seconds=10)
        assert issuer.asked == 2
        await keys.close()

    asyncio.run(run())


def test_known_keys_are_looked_after_too() -> None:
    """Keys in use are fetched again every five minutes, so that a new one is there before its first token."""

    async def run() -> None:
        clock, issuer = FakeClock(), Issuer("a")
        keys = KeySet(issuer.fetch, ["ES256"], clock)
        await keys.refresh()
        generation = keys.generation
        for seconds in (0, 299, 1):
            clock.advance(seconds=seconds)
            assert keys.find("a", "ES256") is not None
        await settled(keys)
        assert issuer.asked == 2
        assert keys.generation == generation, "nothing has changed"
        await keys.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"not JSON",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1, null, {"kty": "oct", "k": "x"}]}',
    ],
)
def test_keys_stay_when_there_is_nothing_better(document: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """An issuer that answers nonsense takes no key away; that is logged."""

    async def run() -> None:
        issuer = Issuer("a")
        keys = KeySet(issuer.fetch, ["ES256"], FakeClock())
        await keys.refresh()
        issuer.document = document
        await keys.refresh()
        assert keys.find("a", "ES256") is not None
        await keys.close()

    asyncio.run(run())
    assert "the known keys stay" in caplog.text


def test_keys_stay_while_an_issuer_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    """One that fails, or takes too long, changes nothing."""

    async def run() -> None:
        issuer = Issuer("a")
        keys = KeySet(issuer.fetch, ["ES256"], FakeClock(), seconds=0.01)
        await keys.refresh()
        issuer.trouble = OSError("no route")
        await keys.refresh()
        issuer.slow = asyncio.Event()
        await keys.refresh()
        assert keys.find("a", "ES256") is not None

    asyncio.run(run())
    assert "no route" in caplog.text
    assert "timeout: no answer within" in caplog.text


def test_a_token_without_a_name_of_a_key_is_taken_by_the_only_one() -> None:
    """If there is one key it can be meant for, that is it; if there are two, none is."""

    async def run() -> None:
        clock, issuer = FakeClock(), Issuer("a")
        keys = KeySet(issuer.fetch, ["ES256"], clock)
        tokens = JwtVerifier(keys, Demands(("ES256",)), clock)
        await keys.refresh()
        assert isinstance(tokens.verify(token(None, key="a")), Bearer)
        issuer.publish("a", "b")
        await keys.refresh()
        assert tokens.verify(token(None, key="a")) is Refusal.KEY
        assert isinstance(tokens.verify(token("a")), Bearer)
        await keys.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "members", [{"use": "enc"}, {"alg": "ES384"}, {"key_ops": ["encrypt"]}, {"d": "AA"}, {"alg": "none"}]
)
def test_keys_for_something_else_are_passed_over(members: dict[str, object]) -> None:
    """A key whose use, algorithm or operations say otherwise verifies nothing, nor does a private one."""

    async def run() -> None:
        issuer = Issuer()
        issuer.publish("a", **members)
        issuer.document["keys"].append(jwk("P-256:b", "ES256", kid=7, alg="ES256", key_ops=["verify"]))
        keys = KeySet(issuer.fetch, ["ES256"], FakeClock())
        await keys.refresh()
        assert keys.find("a", "ES256") is None
        assert keys.find(None, "ES256") is not None
        await keys.close()

    asyncio.run(run())
