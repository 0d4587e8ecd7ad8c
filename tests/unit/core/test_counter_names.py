from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.adapters.zones import zone
from headgate.core.api_key import new_api_key, new_token
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.testing import FakeClock

EVERYTHING = ("tenant", "user", "api_key", "ip", "endpoint", "method", "attribute:region")


def key(request: Request, **fields: Any) -> str:  # noqa: ANN401 (fields of a rule)
    rule = {"name": "r", "limits": "5/minute", **fields}
    rules = Snapshot(parse_rule_set([rule]), 1, zone, FakeClock())
    (bound,) = rules.plan(request).enforced
    return bound.hit.key


def test_a_global_rule_has_one_counter() -> None:
    """A rule that counts all requests together has one counter, under its own name."""
    assert key(Request(user="a")) == key(Request(user="b")) == "rl:{g=r}:r:sc1m"


def test_the_caller_is_the_subject_and_the_rest_follows() -> None:
    """The first of user, API key, tenant and address stands in braces; the other parts follow."""
    request = Request("u", "t", "k", "192.0.2.1", method="POST", path="/x", attributes={"region": "eu"})
    digest = "sha256:8254c329a92850f6d539dd376f4816ee"
    expected = f"rl:{{u=u}}:r:sc1m|k={digest}|t=t|i=192.0.2.1|e=/*|m=POST|a.region=eu"
    assert key(request, per=list(EVERYTHING)) == expected


@settings(deadline=None)
@given(st.permutations(EVERYTHING), st.integers(1, len(EVERYTHING)))
def test_the_order_of_per_does_not_matter(per: list[str], count: int) -> None:
    """Writing the parts of `per` in another order goes on with the same counters."""
    request = Request("u", "t", "k", "192.0.2.1", method="POST", path="/x", attributes={"region": "eu"})
    assert key(request, per=per[:count]) == key(request, per=sorted(per[:count]))


def test_a_missing_part_becomes_the_address_and_then_unknown() -> None:
    """Where a caller is not known the address stands in, then `unknown`, both marked; the rule is never skipped."""
    for part, code in {"user": "u", "api_key": "k", "tenant": "t", "method": "m", "attribute:x": "a.x"}.items():
        assert key(Request(ip="192.0.2.1"), per=part) == f"rl:{{{code}@192.0.2.1}}:r:sc1m"
        assert key(Request(), per=part) == f"rl:{{{code}?unknown}}:r:sc1m"
    assert key(Request(), per="ip") == "rl:{i?unknown}:r:sc1m"
    assert key(Request(user="", ip="192.0.2.1"), per="user") == "rl:{u@192.0.2.1}:r:sc1m"


def test_no_api_key_is_part_of_a_counters_name() -> None:
    """A key stands there as a digest, its id as it is; what is malformed is counted by address."""
    secret, id_ = new_api_key(b"s" * 32), "0f0e0d0c-0b0a-4908-8706-050403020100"
    for per in ("api_key", "attribute:api_key"):

        def name(text: str, per: str = per) -> str:
            return key(Request(api_key=text, ip="192.0.2.1", attributes={"api_key": text}), per=per)

        assert f"={id_}}}" in name(id_)
        assert "=sha256:" in name(secret)
        assert "=sha256:" in name("sk_live_abcdef")
        assert name("sk_live_abcdef") == name(" sk_live_abcdef\t")
        for malformed in (f"{secret} ", secret[:-1], secret.upper(), "hg_", "hgt_1", new_token(b"t" * 32), " "):
            assert "@192.0.2.1}" in name(malformed), malformed
        for text in (secret, "sk_live_abcdef", f"{secret} ", secret[:-1]):
            assert text not in name(text)


@settings(deadline=None)
@given(st.text(), st.text())
def test_no_value_imitates_another(one: str, other: str) -> None:
    """Different users have different counters, whatever their names are, and no user is taken for an address."""
    for user in (one, other):
        name = key(Request(user=user, ip="192.0.2.1"), per=["user", "method"])
        assert name.count("{") == name.count("}") == 1
        assert name.startswith("rl:{u=") is bool(user)
    same = key(Request(user=one, ip="192.0.2.1"), per="user") == key(Request(user=other, ip="192.0.2.1"), per="user")
    assert same is (one == other)


def test_an_endpoint_is_its_template_and_never_the_raw_path() -> None:
    """`endpoint` in `per` is the framework's route where it is known, else the pattern that matched."""
    match = {"endpoints": ["/users/{id}", "/files/*"]}
    assert key(Request(path="/users/7"), per="endpoint", match=match) == "rl:{e=/users/%7Bid%7D}:r:sc1m"
    assert key(Request(path="/files/a/b"), per="endpoint", match=match) == "rl:{e=/files/*}:r:sc1m"
    routed = Request(path="/users/7", route="/users/<int:id>")
    assert key(routed, per="endpoint", match=match) == "rl:{e=/users/<int:id>}:r:sc1m"
    assert key(Request(path="/raw/7"), per="endpoint") == "rl:{e=/*}:r:sc1m"


def test_addresses_are_canonical() -> None:
    """However an address is written it has one counter, and IPv6 callers are counted by /64."""
    plain = key(Request(ip="192.0.2.1"), per="ip")
    assert key(Request(ip="::ffff:192.0.2.1"), per="ip") == plain
    first, second = (key(Request(ip=ip), per="ip") for ip in ("2001:db8::1", "2001:0DB8:0::ffff"))
    assert first == second == "rl:{i=2001:db8::/64}:r:sc1m"
    assert key(Request(ip="2001:db8:0:1::1"), per="ip") != first


def test_amounts_are_not_part_of_a_counters_name() -> None:
    """Raising or lowering a limit, or its burst, goes on with the same counter."""
    assert key(Request(), limits="5/minute") == key(Request(), limits="500/60s")
    bucket = {"algorithm": "token_bucket"}
    assert key(Request(), limits="5/minute", **bucket) == key(Request(), limits="5/minute burst 50", **bucket)
    slots = {"algorithm": "concurrency"}
    assert key(Request(), limits="3 concurrent", **slots) == key(Request(), limits="9 concurrent ttl 5s", **slots)


def test_algorithm_and_period_are_part_of_a_counters_name() -> None:
    """Another algorithm, another period or another rule starts another counter."""
    throttle = {"algorithm": "leaky_bucket", "action": "throttle"}
    found = [
        key(Request(), limits="5/minute"),
        key(Request(), limits="5/hour"),
        key(Request(), limits="5/minute", name="other"),
        *(key(Request(), algorithm=name) for name in ("fixed_window", "sliding_window_log", "token_bucket")),
        key(Request(), **throttle),
        key(Request(), limits="5/calendar day", algorithm="fixed_window"),
        key(Request(), limits="5/calendar day tz Europe/Berlin", algorithm="fixed_window"),
    ]
    assert len(set(found)) == len(found)


def test_every_request_holds_slots_of_its_own() -> None:
    """Under a concurrency rule two requests of one user are two holders of one counter."""
    rule = {"name": "r", "per": "user", "limits": "1 concurrent", "algorithm": "concurrency"}
    rules = Snapshot(parse_rule_set([rule]), 1, zone, FakeClock())
    one, other = (rules.plan(Request(user="u")).enforced[0].hit for _ in range(2))
    assert one.key == other.key
    assert one.holder != other.holder
