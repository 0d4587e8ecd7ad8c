"""Sound tokens, and what they say."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dataplane.signing import CLAIMS, NOW, SECRET, pem, private_key, signed

from headgate.core.units import SECOND
from headgate.dataplane import jwt_verifier
from headgate.dataplane.jwt_keys import OneKey, check_algorithms, key_from_jwk, key_from_text
from headgate.dataplane.jwt_verifier import Bearer, Demands, JwtVerifier, Refusal
from headgate.errors import InvalidSettings
from headgate.testing import FakeClock

FAMILIES = [
    *((name, "RSA") for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    *(("ES256", "P-256"), ("ES384", "P-384"), ("ES512", "P-521"), ("EdDSA", "Ed25519"), ("EdDSA", "Ed448")),
]


def verifier(clock: FakeClock | None = None, **demands: Any) -> JwtVerifier:  # noqa: ANN401 (fields of demands)
    key = key_from_text(SECRET, ["HS256"])
    return JwtVerifier(OneKey(key), Demands(("HS256",), **demands), clock or FakeClock())


@pytest.mark.parametrize(("algorithm", "kind"), FAMILIES)
def test_every_family_of_signatures_is_understood(algorithm: str, kind: str) -> None:
    """A token is believed if it was signed by an algorithm that was set, with the key that was set."""
    tokens = JwtVerifier(OneKey(key_from_text(pem(kind), [algorithm])), Demands((algorithm,)), FakeClock())
    bearer = tokens.verify(signed(CLAIMS, private_key(kind), algorithm))
    assert bearer == Bearer("u1", None, None, (NOW + 60) * SECOND)
    assert tokens.verify(signed(CLAIMS, private_key(f"{kind}:2"), algorithm)) is Refusal.SIGNATURE


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_every_kind_of_secret_is_understood(algorithm: str) -> None:
    """The same with secrets."""
    tokens = JwtVerifier(OneKey(key_from_text(SECRET, [algorithm])), Demands((algorithm,)), FakeClock())
    assert isinstance(tokens.verify(signed(CLAIMS, algorithm=algorithm)), Bearer)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"sub": "u1", "org": {"id": 7, "plan": "pro"}}, ("u1", "7", "pro")),
        ({"sub": 42}, ("42", None, None)),
        ({"sub": -1, "org": "none"}, ("-1", None, None)),
        ({"sub": "ü·用户", "org": {"id": None}}, ("ü·用户", None, None)),
        ({"sub": "u1", "org.id": "t1", "org": {"id": "t2"}}, ("u1", "t1", None)),
    ],
)
def test_claims_are_found_by_name_or_path(claims: dict[str, Any], said: tuple[str | None, ...]) -> None:
    """User, tenant and tier are texts or whole numbers; a name with dots is a path, unless there is such a name."""
    tokens = verifier(tenant_claim="org.id", tier_claim="org.plan")
    assert tokens.verify(signed({**CLAIMS, **claims}))[:3] == said


@pytest.mark.parametrize("tenant", [True, [], 1.5, "", "x" * 256])
def test_a_strange_tenant_makes_the_whole_token_strange(tenant: object) -> None:
    """A claim that is there and is neither a text nor a whole number is not passed over."""
    assert verifier(tenant_claim="t").verify(signed({**CLAIMS, "t": tenant})) is Refusal.CLAIMS


def test_issuer_and_audience_must_be_the_ones_that_were_set() -> None:
    """A token of another issuer, or for another audience, is refused."""
    tokens = verifier(issuer="https://idp.example", audience="api")
    good = {**CLAIMS, "iss": "https://idp.example", "aud": ["web", "api"]}
    assert isinstance(tokens.verify(signed(good)), Bearer)
    assert isinstance(tokens.verify(signed({**good, "aud": "api"})), Bearer)
    for issuer in (None, "https://idp.example/", ["https://idp.example"], 7):
        assert tokens.verify(signed({**good, "iss": issuer})) is Refusal.ISSUER
    for audience in (None, "API", "web", ["web"], {"api": 1}):
        assert tokens.verify(signed({**good, "aud": audience})) is Refusal.AUDIENCE


def test_clocks_may_be_off_by_the_leeway() -> None:
    """With a leeway, a token is good for a little before and after its time."""
    tokens = verifier(leeway=5 * SECOND)
    assert isinstance(tokens.verify(signed({**CLAIMS, "exp": NOW - 4})), Bearer)
    assert tokens.verify(signed({**CLAIMS, "exp": NOW - 5})) is Refusal.EXPIRED
    assert isinstance(tokens.verify(signed({**CLAIMS, "nbf": NOW + 5, "iat": NOW + 5.0})), Bearer)
    assert tokens.verify(signed({**CLAIMS, "nbf": NOW + 5.1})) is Refusal.NOT_YET


def test_a_verified_token_is_remembered_until_it_expires() -> None:
    """It is verified once, and not a moment longer believed than it says."""
    clock = FakeClock()
    tokens = verifier(clock)
    token = signed(CLAIMS)
    first = tokens.verify(token)
    assert tokens.verify(token) is first
    clock.advance(seconds=60)
    assert tokens.verify(token) is Refusal.EXPIRED
    assert not tokens._known


def test_not_more_tokens_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many tokens, the oldest are forgotten; they are verified again."""
    monkeypatch.setattr(jwt_verifier, "_MAX_REMEMBERED", 2)
    tokens = verifier()
    for user in ("a", "b", "c", "a"):
        assert tokens.verify(signed({**CLAIMS, "sub": user}))[0] == user
    assert len(tokens._known) == 2


@pytest.mark.parametrize("kind", ["jwt", "at+jwt", "application/at+JWT"])
def test_access_tokens_may_say_what_they_are(kind: str) -> None:
    """The type of a token is that of a token in general, or of an access token (RFC 9068)."""
    assert isinstance(verifier().verify(signed(CLAIMS, header={"alg": "HS256", "typ": kind})), Bearer)


@pytest.mark.parametrize(
    ("names", "key_set", "says"),
    [
        (["none"], False, "'none'"),
        (["HS256", "hs256"], False, "choose from"),
        (["ES256K"], False, "ES256K"),
        (["HS256", "RS256"], False, "choose one"),
        (["HS256"], True, "choose one"),
    ],
)
def test_algorithms_that_cannot_be_safe_are_refused(names: list[str], key_set: bool, says: str) -> None:  # noqa: FBT001 (a table)
    """`none`, unknown ones, and secrets together with public keys are refused before the first token comes."""
    with pytest.raises(InvalidSettings, match=says):
        check_algorithms(names, key_set=key_set)


def test_algorithms_of_one_side_go_together() -> None:
    """Several kinds of secrets, or of public keys, may be set at once."""
    check_algorithms(["HS256", "HS512"], key_set=False)
    check_algorithms(["RS256", "ES256", "EdDSA"], key_set=True)


@pytest.mark.parametrize(
    ("text", "algorithms", "says"),
    [
        (pem("RSA"), ["HS256"], "takes a secret"),
        (pem("P-256"), ["HS512"], "takes a secret"),
        ("ssh-rsa AAAAB3NzaC1yc2E= me@here", ["HS256"], "takes a secret"),
        ("short", ["HS256"], "32 or more"),
        ("x" * 40, ["HS256", "HS384"], "48 or more"),
        ("x" * 64, ["RS256"], "not a public key"),
        ("-----BEGIN PUBLIC KEY-----\nxxxx\n-----END PUBLIC KEY-----", ["RS256"], "not a public key"),
        (pem("RSA"), ["ES256"], "can verify PS256"),
        (pem("P-256"), ["ES384"], "can verify ES256"),
        (pem("P-256"), ["ES256", "ES384"], "can verify ES256"),
        (pem("weak RSA"), ["RS256"], "too weak"),
        (pem("secp256k1"), ["ES256"], "too weak, or of a kind"),
        (pem("Ed25519"), ["RS256"], "can verify EdDSA"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(text: str, algorithms: list[str], says: str) -> None:
    """A key must be of the kind, and of the strength, that the algorithms ask for; it is never repeated."""
    with pytest.raises(InvalidSettings, match=says) as caught:
        key_from_text(text, algorithms)
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        {"kty": "RSA"},
        {"kty": "RSA", "n": 1, "e": 2},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-9"},
        {"kty": "OKP", "crv": "X25519", "x": "A" * 43},
        {"kty": "oct", "k": "x"},
        {"kty": ["RSA"]},
        {},
        {"use": ["sig"]},
        {"use": "sig", "key_ops": "verify"},
        {"key_ops": ["sign"]},
    ],
)
def test_what_is_no_public_key_is_passed_over(data: dict[str, Any]) -> None:
    """Of a set of keys, only those are used that are public, whole and meant for signatures."""
    assert key_from_jwk(data, frozenset({"RS256", "ES256", "EdDSA"})) is None
