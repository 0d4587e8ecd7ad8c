from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from headgate.controlplane.time_spans import A_DAY, A_WEEK, span
from headgate.errors import InvalidFields

NOW: Final = datetime(2026, 11, 18, 12, 0, 0, 900_000, UTC)


@pytest.mark.parametrize("longest", [A_DAY, A_WEEK])
@pytest.mark.parametrize("late", [0.0, 0.9, 2.0, 30.0])
def test_the_longest_span_can_be_asked_for(longest: timedelta, late: float) -> None:
    """`--since 7d` is 7 days by the caller's clock, cut to whole seconds, and is asked some time later."""
    since = (NOW - longest).replace(microsecond=0) - timedelta(seconds=late)
    assert span(NOW, since, None, longest=longest)[0] == since


def test_more_than_the_longest_is_refused() -> None:
    """A span that is longer by hours is refused, with what can be asked for."""
    with pytest.raises(InvalidFields, match="at most 7 days"):
        span(NOW, NOW - A_WEEK - timedelta(hours=1), None, longest=A_WEEK)
