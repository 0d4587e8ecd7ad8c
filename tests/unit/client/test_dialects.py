"""Reading the rate-limit headers of servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.client import Standing, read
from headgate.client.dialects import MAX_SPAN
from headgate.core.units import DAY, HOUR, MINUTE, SECOND
from headgate.testing.clock import NEW_YEAR

NOW = NEW_YEAR + 250_000


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120),
        ({"retry-after": " 7 "}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:10 GMT"}, 9.75),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:10 GMT", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 9.75),
        ({"Retry-After": "Thu, 01 Jan 2026 01:00:10 GMT", "Date": "Thu, 01 Jan 2026 01:00:00 GMT"}, 10),
        ({"Retry-After": "Thu, 01 Jan 2015 00:00:10 GMT"}, 0),
        ({"Retry-After-Ms": "1500", "Retry-After": "2"}, 1.5),
        ({"Retry-After": "99999999999999999999"}, MAX_SPAN / SECOND),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "Thu, 99 Jan 2026 00:00:10 GMT"}, None),
        ({"Retry-After": "٣"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, dates and milliseconds are understood; dates by the server's clock if it differs from ours."""
    expected = None if seconds is None else round(seconds * SECOND)
    assert read(headers.items(), NOW).retry_after == expected


@pytest.mark.parametrize(
    ("headers", "standings"),
    [
        pytest.param(
            {"RateLimit-Policy": '"burst";q=100;w=60,"daily";q=1000;w=86400', "RateLimit": '"burst";r=50;t=30'},
            [Standing("burst", 100, 50, 30 * SECOND, MINUTE)],
            id="IETF draft",
        ),
        pytest.param(
            {"RateLimit-Policy": '"a,b;c";q=9;qu="content-bytes";w=1', "RateLimit": '"a,b;c";r=0;pk=:YQ==:'},
            [Standing("a,b;c", 9, 0, None, SECOND, counts_requests=False)],
            id="IETF draft, odd names",
        ),
        pytest.param(
            {"RateLimit": "limit=100, remaining=50, reset=30", "RateLimit-Policy": "100;w=60"},
            [Standing("", 100, 50, 30 * SECOND, MINUTE)],
            id="IETF draft 7",
        ),
        pytest.param(
            {"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "50", "RateLimit-Reset": "30"},
            [Standing("", 100, 50, 30 * SECOND, MINUTE)],
            id="IETF draft 6",
        ),
        pytest.param(
            {"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "4999", "X-RateLimit-Reset": "1767229200"},
            [Standing("", 5000, 4999, HOUR - 250_000)],
            id="GitHub",
        ),
        pytest.param(
            {"x-rate-limit-limit": "15", "x-rate-limit-remaining": "0", "x-rate-limit-reset": "1767225610000"},
            [Standing("", 15, 0, 9_750_000)],
            id="X, and milliseconds",
        ),
        pytest.param(
            {
                "RateLimit-Limit": "10",
                "RateLimit-Remaining": "7",
                "RateLimit-Reset": "42",
                "X-RateLimit-Limit-Minute": "10",
                "X-RateLimit-Remaining-Minute": "7",
            },
            [Standing("minute", 10, 7, None, MINUTE)],
            id="Kong",
        ),
        pytest.param(
            {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-requests": "6m0.5s",
                "x-ratelimit-remaining-tokens": "9",
                "x-ratelimit-reset-tokens": "20ms",
            },
            [
                Standing("requests", 60, 59, 6 * MINUTE + SECOND // 2),
                Standing("tokens", None, 9, 20_000, counts_requests=False),
            ],
            id="OpenAI",
        ),
        pytest.param(
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:10Z",
            },
            [Standing("anthropic-requests", 50, 49, 9_750_000)],
            id="Anthropic",
        ),
        pytest.param(
            {
                "X-RateLimit-Limit": "5",
                "X-RateLimit-Remaining": "4",
                "X-RateLimit-Reset": "1767225700",
                "X-RateLimit-Reset-After": "1.25",
            },
            [Standing("", 5, 4, 1_250_000)],
            id="Discord",
        ),
        pytest.param(
            {
                "x-ratelimit-limit": '10, 10;w=1;name="per-ip", 1000;w=3600',
                "x-ratelimit-remaining": "9",
                "x-ratelimit-reset": "1",
            },
            [Standing("", 10, 9, SECOND, SECOND)],
            id="Envoy",
        ),
        pytest.param({"X-RateLimit-Limit": "10"}, [], id="not what is left"),
        pytest.param({"X-RateLimit-Remaining": "many"}, [], id="no number"),
    ],
)
def test_dialects(headers: dict[str, str], standings: list[Standing]) -> None:
    """Every dialect is read into one form."""
    assert list(read(headers.items(), NOW).standings) == standings


_names = st.sampled_from(
    [
        *("Retry-After", "Retry-After-Ms", "Date", "RateLimit", "RateLimit-Policy", "RateLimit-Limit"),
        *("X-RateLimit-Remaining", "X-RateLimit-Reset", "x-ratelimit-reset-requests", "X-Rate-Limit-Reset-After"),
        *("anthropic-ratelimit-tokens-remaining", "ratelimit-", "x-ratelimit-limit-limit-limit"),
    ]
)
_words = st.lists(
    st.sampled_from(
        ['"a"', "r=1", "t=", "9" * 30, ";", ",", "=", '"', "\\", "1h", "2026-01-01", "-", "inf", "nan", " "]
    )
)
_values = st.text(max_size=50) | _words.map("".join) | st.datetimes().map(str) | st.integers().map(str)


@given(st.lists(st.tuples(_names | st.text(max_size=20), _values), max_size=12), st.integers(0, 4 * 10**15))
def test_hostile_headers_never_crash_and_never_ask_for_more_than_the_longest_wait(
    headers: list[tuple[str, str]], now: int
) -> None:
    """Any header is read or ignored, and no wait is negative or endless."""
    reading = read(headers, now)
    spans = [reading.retry_after, *(standing.reset for standing in reading.standings)]
    assert all(span is None or 0 <= span <= MAX_SPAN for span in spans)
    assert all(standing.remaining is not None and standing.remaining >= 0 for standing in reading.standings)
    assert all(standing.window is None or standing.window > 0 for standing in reading.standings)


def test_a_flood_of_policies_is_cut_off() -> None:
    """Of a thousand limits only some are read, and a huge value is ignored."""
    many = {f"X-RateLimit-Remaining-p{number}": "1" for number in range(1_000)}
    assert len(read(many.items(), NOW).standings) == 32
    assert read([("RateLimit", '"a";r=1,' * 10_000)], NOW).standings == ()
    assert DAY < MAX_SPAN
