"""No token passes that was not issued as it stands."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest
from tests.unit.dataplane.signing import CLAIMS, NOW, SECRET, jwk, part, pem, private_key, signed

from headgate.dataplane.jwt_keys import KeySet, OneKey, key_from_jwk, key_from_text
from headgate.dataplane.jwt_verifier import Demands, JwtVerifier, Refusal
from headgate.testing import FakeClock

GOOD: Final = signed(CLAIMS)
HEADER, BODY, SIGNATURE = GOOD.split(".")
RSA: Final = private_key("RSA")
_HS: Final = {"alg": "HS256", "typ": "JWT"}


def header(**members: object) -> str:
    """A token whose signature is right, and whose header says something more, or else."""
    return signed(CLAIMS, header={**_HS, **members})


def claims(**members: object) -> str:
    """A token whose signature is right, and whose claims say something more, or else."""
    return signed({**CLAIMS, **members})


def raw_claims(text: str) -> str:
    """A token whose signature is right, and whose claims are this text."""
    return signed(text.encode())


def unsigned(algorithm: object, signature: str = "") -> str:
    return f"{part({'alg': algorithm, 'typ': 'JWT'})}.{BODY}.{signature}"


def claims_without(name: str) -> dict[str, Any]:
    return {each: value for each, value in CLAIMS.items() if each != name}


BY_SECRET: Final[dict[str, str]] = {
    # No signature
    "none": unsigned("none"),
    "None": unsigned("None"),
    "NONE": unsigned("NONE"),
    "nOnE": unsigned("nOnE"),
    "none with a signature": unsigned("none", SIGNATURE),
    "none with a signature of one byte": unsigned("none", "AA"),
    "an empty signature": f"{HEADER}.{BODY}.",
    "no signature at all": f"{HEADER}.{BODY}",
    "only a header": HEADER,
    "a null algorithm": unsigned(None, SIGNATURE),
    "an empty algorithm": unsigned("", SIGNATURE),
    "no algorithm": f"{part({'typ': 'JWT'})}.{BODY}.{SIGNATURE}",
    # The algorithm
    "hs256 in small letters": header(alg="hs256"),
    "Hs256": header(alg="Hs256"),
    "HS256 and a blank": header(alg="HS256 "),
    "HS256 and NUL": header(alg="HS256\0"),
    "a list of algorithms": header(alg=["HS256"]),
    "a number as the algorithm": header(alg=256),
    "true as the algorithm": header(alg=True),
    "HS384, which is not among those set": signed(CLAIMS, algorithm="HS384"),
    "HS512, which is not among those set": signed(CLAIMS, algorithm="HS512"),
    "RS256, which is not among those set": signed(CLAIMS, RSA, "RS256"),
    "an unknown algorithm": header(alg="HS1"),
    # The key
    "another secret": signed(CLAIMS, "another secret that is long enough, so that this is not why it fails"),
    "no secret": signed(CLAIMS, b""),
    "the first half of the secret": signed(CLAIMS, SECRET[:32]),
    "a kid that climbs": signed(CLAIMS, b"", header={**_HS, "kid": "../../../../dev/null"}),
    "a kid with SQL": signed(CLAIMS, "x" * 32, header={**_HS, "kid": "' UNION SELECT 'x"}),
    "a kid that is a command": signed(CLAIMS, "x" * 32, header={**_HS, "kid": "|/bin/sh -c id"}),
    "a kid that is a list": header(kid=["1"]),
    "a kid that is an object": header(kid={"a": 1}),
    "a kid that is a number": header(kid=0),
    "a kid that is true": header(kid=True),
    "an endless kid": header(kid="k" * 256),
    "a key of its own": signed(CLAIMS, RSA, "RS256", {"alg": "RS256", "jwk": jwk("RSA", "RS256")}),
    "a key of its own for HS256": signed(CLAIMS, "x" * 32, header={**_HS, "jwk": {"kty": "oct", "k": part(b"x" * 32)}}),
    "the address of a key": signed(CLAIMS, "x" * 32, header={**_HS, "jku": "https://evil.example/jwks.json"}),
    "a certificate": signed(CLAIMS, "x" * 32, header={**_HS, "x5c": ["MIIB"], "x5u": "https://evil.example/x.pem"}),
    # What would change how it is read
    "something critical": header(crit=["exp"], exp=NOW + 60),
    "something critical and unknown": header(crit=["http://example.com/unknown"]),
    "nothing critical": header(crit=[]),
    "a payload that is not encoded": header(b64=False, crit=["b64"]),
    "b64 without crit": header(b64=False),
    "b64 true": header(b64=True),
    "compression": header(zip="DEF"),
    "a token in a token": header(cty="JWT"),
    "a type of another kind of token": header(typ="logout+jwt"),
    "a type that is no text": header(typ=["JWT"]),
    "encryption": header(enc="A128GCM"),
    # The form
    "nothing": "",
    "two dots": "..",
    "a JWE": f"{HEADER}.{BODY}.{SIGNATURE}.{BODY}.{SIGNATURE}",
    "padding": f"{HEADER}.{BODY}.{SIGNATURE}=",
    "ordinary base64": f"{HEADER}.{BODY}.{SIGNATURE[:-2]}+/",
    "a line break behind it": f"{GOOD}\n",
    "a blank before it": f" {GOOD}",
    "a blank inside": f"{HEADER}. {BODY}.{SIGNATURE}",
    "letters that only look alike": GOOD.replace("e", "\u0435"),
    "full-width dots": GOOD.replace(".", "\uff0e"),
    "NUL": f"{GOOD}\0",
    "a part of an impossible length": f"{HEADER}.{BODY}.{'A' * 5}",
    "bits that nothing needs": f"{HEADER}.{BODY}.{SIGNATURE[:-1]}{chr(ord(SIGNATURE[-1]) + 1)}",
    "swapped parts": f"{BODY}.{HEADER}.{SIGNATURE}",
    "header and claims swapped and signed": signed(_HS, header=CLAIMS),
    "the signature of another token": f"{HEADER}.{part({**CLAIMS, 'sub': 'admin'})}.{SIGNATURE}",
    "another header under the signature": f"{part({**_HS, 'kid': '1'})}.{BODY}.{SIGNATURE}",
    "half of the signature": f"{HEADER}.{BODY}.{SIGNATURE[:20]}",
    "too long": signed({**CLAIMS, "more": "x" * 8_192}),
    "huge": "A" * 10_000_000,
    "a header that is a list": signed(CLAIMS, header=[_HS]),
    "a header that is no JSON": signed(CLAIMS, header=b"alg=HS256"),
    "a header that is not UTF-8": signed(CLAIMS, header=b'{"alg":"HS256","x":"\xff"}'),
    "a header with two algorithms": signed(CLAIMS, header=b'{"alg":"none","alg":"HS256"}'),
    "a header with a byte order mark": signed(CLAIMS, header=b'\xef\xbb\xbf{"alg":"HS256"}'),
    "endless brackets": signed(b"[" * 5_000),
    "endless objects": signed(b'{"a":' * 1_000),
    # The claims
    "claims that are a list": signed([CLAIMS]),
    "claims that are a text": signed("sub=u1"),
    "claims that are null": signed(None),
    "claims twice": raw_claims(f'{{"sub":"u1","sub":"admin","exp":{NOW + 60}}}'),
    "exp twice": raw_claims(f'{{"sub":"u1","exp":{NOW - 60},"exp":{NOW + 60}}}'),
    "a claim twice inside": raw_claims(f'{{"sub":"u1","a":{{"b":1,"b":2}},"exp":{NOW + 60}}}'),
    "expired": claims(exp=NOW - 1),
    "expired just now": claims(exp=NOW),
    "without exp": signed(claims_without("exp")),
    "exp null": claims(exp=None),
    "exp as text": claims(exp=str(NOW + 60)),
    "exp as a list": claims(exp=[NOW + 60]),
    "exp true": claims(exp=True),
    "exp NaN": raw_claims('{"sub":"u1","exp":NaN}'),
    "exp infinite": raw_claims('{"sub":"u1","exp":Infinity}'),
    "exp beyond numbers": raw_claims('{"sub":"u1","exp":1e999}'),
    "exp of a thousand digits": raw_claims(f'{{"sub":"u1","exp":1{"0" * 1_000}}}'),
    "exp of five thousand digits": raw_claims(f'{{"sub":"u1","exp":1{"0" * 5_000}}}'),
    "exp in milliseconds": claims(exp=(NOW + 60) * 1_000),
    "exp negative": claims(exp=-1),
    "not yet": claims(nbf=NOW + 1),
    "nbf as text": claims(nbf="0"),
    "nbf null": claims(nbf=None),
    "issued in the future": claims(iat=NOW + 1),
    "iat as text": claims(iat="0"),
    "iat negative": claims(iat=-1),
    "for another audience": claims(aud="others"),
    "for several others": claims(aud=["others", "more"]),
    "for an empty list": claims(aud=[]),
    "for an object": claims(aud={"me": 1}),
    "without sub": signed(claims_without("sub")),
    "sub null": claims(sub=None),
    "sub empty": claims(sub=""),
    "sub true": claims(sub=True),
    "sub false": claims(sub=False),
    "sub a list": claims(sub=["u1"]),
    "sub an object": claims(sub={"id": "u1"}),
    "sub a fraction": claims(sub=1.5),
    "sub endless": claims(sub="u" * 256),
    "sub with NUL": claims(sub="u1\0admin"),
    "sub with a line break of a terminal": claims(sub="u1\x1b[2J"),
    "sub with half of a surrogate pair": raw_claims(f'{{"sub":"\\ud800","exp":{NOW + 60}}}'),
}


def test_there_are_enough_of_them() -> None:
    """At least 60 hostile tokens are tried."""
    assert len(BY_SECRET) >= 60


@pytest.mark.parametrize("token", BY_SECRET.values(), ids=BY_SECRET)
def test_a_hostile_token_is_refused(token: str) -> None:
    """It is not believed, raises nothing, and is counted under a reason."""
    tokens = JwtVerifier(OneKey(key_from_text(SECRET, ["HS256"])), Demands(("HS256",)), FakeClock())
    refusal = tokens.verify(token)
    assert isinstance(refusal, Refusal)
    assert tokens.refused == {refusal: 1}
    assert not isinstance(tokens.verify(GOOD), Refusal), "the verifier itself is sound"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("kind", ["RSA", "P-256", "Ed25519"])
def test_the_text_of_a_public_key_is_no_secret(algorithm: str, kind: str) -> None:
    """A token signed by HS… with a public key, which is not secret, is refused."""
    meant = {"RSA": "RS256", "P-256": "ES256", "Ed25519": "EdDSA"}[kind]
    tokens = JwtVerifier(OneKey(key_from_text(pem(kind), [meant])), Demands((meant,)), FakeClock())
    hmac = _hmac(algorithm, pem(kind))
    assert tokens.verify(hmac) is Refusal.ALGORITHM
    assert tokens.verify(hmac.replace(part({"alg": algorithm}), part({"alg": meant}))) is Refusal.SIGNATURE


def test_even_with_both_kinds_pinned_a_key_serves_only_its_own() -> None:
    """If a verifier were built by hand that takes secrets and public keys, a key would still not change sides."""
    key = key_from_jwk(jwk("RSA", "RS256"), frozenset({"RS256", "HS256"}))
    assert key is not None
    tokens = JwtVerifier(OneKey(key), Demands(("RS256", "HS256")), FakeClock())
    assert tokens.verify(_hmac("HS256", pem("RSA"))) is Refusal.SIGNATURE
    assert not isinstance(tokens.verify(signed(CLAIMS, RSA, "RS256")), Refusal)


def _hmac(algorithm: str, text: str) -> str:
    return signed(CLAIMS, text.encode(), algorithm, {"alg": algorithm})


IN_A_SET: Final[dict[str, str]] = {
    "signed with another key": signed(CLAIMS, private_key("RSA:2"), "RS256", {"alg": "RS256", "kid": "1"}),
    "another algorithm of the same key": signed(CLAIMS, RSA, "RS512", {"alg": "RS512", "kid": "1"}),
    "PSS where the key is for PKCS": signed(CLAIMS, RSA, "PS256", {"alg": "PS256", "kid": "1"}),
    "the key of another name": signed(CLAIMS, RSA, "RS256", {"alg": "RS256", "kid": "2"}),
    "a name that is not there": signed(CLAIMS, RSA, "RS256", {"alg": "RS256", "kid": "3"}),
    "an empty name": signed(CLAIMS, RSA, "RS256", {"alg": "RS256", "kid": ""}),
    "the key for encryption": signed(CLAIMS, private_key("RSA:2"), "RS256", {"alg": "RS256", "kid": "enc"}),
    "a key of its own": signed(
        CLAIMS, private_key("RSA:2"), "RS256", {"alg": "RS256", "kid": "9", "jwk": jwk("RSA:2", "RS256", kid="9")}
    ),
    "HS256 by the key's document": signed(
        CLAIMS, json.dumps(jwk("RSA", "RS256")), "HS256", {"alg": "HS256", "kid": "1"}
    ),
    "ES256 with nothing in the signature": (f"{part({'alg': 'ES256', 'kid': 'ec'})}.{part(CLAIMS)}.{part(bytes(64))}"),
    "ES256 with a signature in DER": (
        f"{part({'alg': 'ES256', 'kid': 'ec'})}.{part(CLAIMS)}.{part(bytes.fromhex('3006020101020101'))}"
    ),
}


@pytest.mark.parametrize("token", IN_A_SET.values(), ids=IN_A_SET)
def test_a_hostile_token_finds_no_key(token: str) -> None:
    """By a set of keys, a token is verified with the key it names, for what that key is meant for, or not at all."""
    keys = [
        jwk("RSA", "RS256", kid="1", alg="RS256", use="sig"),
        jwk("P-256", "ES256", kid="ec"),
        jwk("RSA:2", "RS256", kid="enc", use="enc"),
        {"kty": "oct", "kid": "2", "k": part(b"x" * 32)},
    ]

    async def run() -> None:
        async def fetch() -> bytes:
            return json.dumps({"keys": keys}).encode()

        pinned = ("RS256", "RS512", "PS256", "ES256")
        key_set = KeySet(fetch, pinned, FakeClock())
        await key_set.refresh()
        tokens = JwtVerifier(key_set, Demands(pinned), FakeClock())
        assert isinstance(tokens.verify(token), Refusal)
        assert not isinstance(tokens.verify(signed(CLAIMS, RSA, "RS256", {"alg": "RS256", "kid": "1"})), Refusal)
        await key_set.close()

    asyncio.run(run())
