"""Processes as they are answered."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from headgate.edge.admin.models.shared import Output, example


class ProcessView(Output):
    """A process as it has last reported itself."""

    model_config = example(
        host="web-1",
        pid=4711,
        role="service",
        region=None,
        started="2026-01-31T12:00:00Z",
        seen="2026-01-31T12:30:00Z",
        rules=42,
        blocks=40,
        rules_from="feed",
        following="feed",
    )

    host: str
    pid: int
    role: Literal["service", "application"] = Field(description="`application` is one with middleware.")
    region: str | None
    started: datetime
    seen: datetime
    rules: int = Field(description="The number of the rules it runs on; 0 if they were never published.")
    blocks: int = Field(description="The number of the blocks it runs on.")
    rules_from: Literal["feed", "database", "saved", "file", "none", "own"] = Field(
        description="Where its rules came from; `own` is an application that has rules in its code."
    )
    following: Literal["feed", "database", "none"] = Field(description="Where it hears of changes now.")


class ProcessPage(Output):
    """Processes by host and process id."""

    items: list[ProcessView]
    next: str | None
