"""From settings to an identity."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.support.fake_records import FakeCache, FakeSource
from tests.unit.dataplane.signing import CLAIMS, SECRET, pem, private_key, signed

from headgate.core.request import Request
from headgate.dataplane.identity import UnauthenticatedCall
from headgate.errors import InvalidSettings
from headgate.settings import Settings, from_environment
from headgate.testing import FakeClock
from headgate.wiring.identity import identity_from


def settings(**given: Any) -> Settings:  # noqa: ANN401 (any setting)
    return replace(Settings(), **given)


def test_without_settings_there_is_nothing_to_believe() -> None:
    """No tokens, no keys, no proxies."""
    identity = identity_from(Settings(), None, None, FakeClock())
    assert (identity.tokens, identity.records, identity.api_key_header) == (None, None, "x-api-key")


def test_settings_become_an_identity() -> None:
    """Tokens by a key, records of a database, proxies, and the header of keys."""

    async def run() -> None:
        source = FakeSource()
        source.users_on_record["u1"] = {"tier": "pro"}
        given = from_environment(
            {
                "HEADGATE_JWT_ALGORITHMS": "RS256, PS256",
                "HEADGATE_JWT_KEY": pem("RSA"),
                "HEADGATE_JWT_LEEWAY_SECONDS": "2.5",
                "HEADGATE_TRUSTED_PROXIES": "10.0.0.0/8",
                "HEADGATE_API_KEY_HEADER": "X-Key",
            }
        )
        identity = identity_from(given, source, FakeCache(), FakeClock())
        token = signed({**CLAIMS, "exp": CLAIMS["exp"] - 61}, private_key("RSA"), "PS256")
        call = UnauthenticatedCall("GET", "/", "10.0.0.1:80", "203.0.113.9", None, f"Bearer {token}")
        assert await identity.identify_call(call) == Request("u1", None, None, "203.0.113.9", "pro", "GET", "/")
        assert identity.api_key_header == "x-key"
        await identity.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"jwt_key": SECRET}, "JWT_ALGORITHMS is not set"),
        ({"jwt_jwks_url": "https://idp.example/keys"}, "JWT_ALGORITHMS is not set"),
        ({"jwt_algorithms": ("HS256",)}, "either HEADGATE_JWT_KEY or"),
        ({"jwt_algorithms": ("RS256",), "jwt_key": SECRET, "jwt_jwks_url": "https://x/"}, "one of the two"),
        ({"jwt_algorithms": ("none",), "jwt_key": SECRET}, "'none'"),
        ({"jwt_algorithms": ("HS256",), "jwt_key": pem("RSA")}, "takes a secret"),
        ({"jwt_algorithms": ("HS256",), "jwt_jwks_url": "https://x/"}, "choose one"),
        ({"jwt_algorithms": ("RS256",), "jwt_jwks_url": "http://x/"}, "https://"),
    ],
)
def test_settings_that_could_not_be_safe_stop_the_start(given: dict[str, Any], says: str) -> None:
    """Each with a sentence that names what to set, and no secret in it."""
    with pytest.raises(InvalidSettings, match=says) as caught:
        identity_from(settings(**given), None, None, FakeClock())
    assert SECRET not in str(caught.value)
