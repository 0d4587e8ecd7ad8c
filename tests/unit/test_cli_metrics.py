"""`headgate metrics`, of points that are made up."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.cli import analytics

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("total", "denied", "throttled", "blocked", "shadow", "degraded")
POINT = dict.fromkeys(KINDS, 7) | {"at": "2026-11-18T21:00:00Z", "user": "u1", "p50": 0.001, "p95": 0.002, "p99": None}


class Points:
    def some(self, path: str, most: int, **_query: object) -> tuple[list[dict[str, Any]], bool]:
        assert (path, most) == ("/v1/metrics", 50)
        return [POINT], False


@contextmanager
def points(*_whom: object, **_options: object) -> Iterator[Points]:
    yield Points()


@pytest.mark.parametrize(("options", "is_timed"), [({}, True), ({"user": "u1"}, False), ({"by": "user"}, False)])
def test_the_latency_of_decisions_is_not_counted_by_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: dict[str, Any], *, is_timed: bool
) -> None:
    """Points of users have no columns for it, which would always be empty."""
    monkeypatch.setattr(analytics, "admin", points)
    analytics.metrics(**options)
    assert ("p50 ms" in capsys.readouterr().out) is is_timed
