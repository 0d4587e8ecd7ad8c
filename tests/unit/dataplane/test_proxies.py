"""The address of a caller behind proxies."""

from __future__ import annotations

import pytest

from headgate.dataplane.proxies import Proxies

TRUSTED = ("10.0.0.0/8", "2001:db8:aa::/48", "192.0.2.7")
PROXY = "10.0.0.1:443"
CALLER = "203.0.113.9"


@pytest.mark.parametrize(
    ("peer", "header", "address"),
    [
        # Whose word counts
        (f"{CALLER}:5000", "198.51.100.1", CALLER),
        (PROXY, None, "10.0.0.1"),
        (PROXY, "", "10.0.0.1"),
        (PROXY, "  ", "10.0.0.1"),
        (PROXY, CALLER, CALLER),
        (PROXY, f"198.51.100.1, {CALLER}", CALLER),
        (PROXY, f"{CALLER}, 10.0.0.2, 10.9.9.9", CALLER),
        (PROXY, f"1.1.1.1, {CALLER}, 10.0.0.2", CALLER),
        (PROXY, "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("192.0.2.7", CALLER, CALLER),
        ("192.0.2.8", CALLER, "192.0.2.8"),
        # Other spellings of the same
        ("[2001:db8:aa::1]:443", CALLER, CALLER),
        ("2001:db8:aa::1", CALLER, CALLER),
        ("[::ffff:10.0.0.1]:443", CALLER, CALLER),
        (PROXY, f"{CALLER}:1234", CALLER),
        (PROXY, "[2001:db8::9]:1234", "2001:db8::9"),
        (PROXY, "2001:db8::9", "2001:db8::9"),
        (PROXY, "[2001:db8::9]", "2001:db8::9"),
        (PROXY, f"{CALLER}, ::ffff:10.0.0.2", CALLER),
        (PROXY, f"\t{CALLER}\t,  10.0.0.2 ", CALLER),
        # What cannot be followed
        (PROXY, "unknown", "10.0.0.1"),
        (PROXY, f"{CALLER}, unknown", "10.0.0.1"),
        (PROXY, f"unknown, {CALLER}", CALLER),
        (PROXY, f"{CALLER},", "10.0.0.1"),
        (PROXY, ",,,", "10.0.0.1"),
        (PROXY, "[]", "10.0.0.1"),
        (PROXY, "1.2.3.4.5", "10.0.0.1"),
        (PROXY, "1.2.3", "10.0.0.1"),
        (PROXY, "010.0.0.1", "10.0.0.1"),
        (PROXY, "1.2.3.4; DROP TABLE", "10.0.0.1"),
        (PROXY, "x" * 100_000, "10.0.0.1"),
        (PROXY, "1" * 100_000 + "," + CALLER, CALLER),
        (PROXY, f"{CALLER}," + ",".join(["10.0.0.2"] * 40), "10.0.0.2"),
        (PROXY, ",".join(["10.0.0.2"] * 100_000), "10.0.0.2"),
        # No address at all
        (None, CALLER, None),
        ("", CALLER, None),
        ("unix:", CALLER, None),
    ],
)
def test_the_caller_is_the_first_hop_that_is_not_trusted(
    peer: str | None, header: str | None, address: str | None
) -> None:
    """`X-Forwarded-For` is followed from its end, through trusted proxies only; else it is the peer."""
    assert Proxies(TRUSTED).address(peer, header, None) == address
    assert Proxies().address(peer, header, None) == Proxies().address(peer, None, None), "no proxy is trusted"


@pytest.mark.parametrize(
    ("header", "address"),
    [
        (f"for={CALLER}", CALLER),
        (f"For={CALLER};proto=https;by=10.0.0.1", CALLER),
        (f"by=10.0.0.1; FOR={CALLER} ; host=example.com", CALLER),
        (f'for="{CALLER}"', CALLER),
        (f'for="{CALLER}:4711"', CALLER),
        ('for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ('for="[2001:db8:cafe::17]"', "2001:db8:cafe::17"),
        (f"for=1.1.1.1, for={CALLER}, for=10.0.0.2", CALLER),
        (f'for=1.1.1.1;host="a,b;c=\\"d", for={CALLER}', CALLER),
        (f'for="\\{CALLER}"', CALLER),
        ("for=10.0.0.3, for=10.0.0.2", "10.0.0.3"),
        # Hidden, or not by the book
        ("for=unknown", "10.0.0.1"),
        ("for=_hidden", "10.0.0.1"),
        ('for="_gazonk:_port"', "10.0.0.1"),
        (f"for={CALLER}, for=_secret", "10.0.0.1"),
        (f"for=_secret, for={CALLER}", CALLER),
        ("proto=https", "10.0.0.1"),
        (f"for={CALLER}, proto=https", "10.0.0.1"),
        (f"for={CALLER},", "10.0.0.1"),
        (f"for={CALLER} for=1.1.1.1", "10.0.0.1"),
        (f"for=[2001:db8::1], for={CALLER}", "10.0.0.1"),
        (f'for="{CALLER}', "10.0.0.1"),
        ("for=", "10.0.0.1"),
        (";", "10.0.0.1"),
        ("", "10.0.0.1"),
        (CALLER, "10.0.0.1"),
        ('for="' + "\\" * 100_000, "10.0.0.1"),
        (",".join(["for=10.0.0.2"] * 10_000), "10.0.0.1"),
        (f"for={CALLER}," + ",".join(["for=10.0.0.2"] * 40), "10.0.0.2"),
    ],
)
def test_forwarded_is_followed_in_the_same_way(header: str, address: str) -> None:
    """`Forwarded` (RFC 7239) with quotes, ports, hidden hops and nonsense."""
    assert Proxies(TRUSTED).address(PROXY, None, header) == address


def test_of_two_headers_the_one_that_proxies_write_counts() -> None:
    """Where both are there, `X-Forwarded-For` decides: what the other says may be the caller's own invention."""
    proxies = Proxies(TRUSTED)
    assert proxies.address(PROXY, CALLER, "for=1.1.1.1") == CALLER
    assert proxies.address(PROXY, "", "for=1.1.1.1") == "10.0.0.1"
    assert proxies.address(PROXY, "nonsense", "for=1.1.1.1") == "10.0.0.1"
