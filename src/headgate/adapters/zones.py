"""Time zones by name, from the system's database."""

from __future__ import annotations

from datetime import UTC, tzinfo

from headgate.errors import InvalidLimit


def zone(name: str) -> tzinfo:
    """Find a time zone; ``UTC`` needs no database."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415 (it loads the paths of the build; few limits have a zone)

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        msg = f"there is no time zone {name!r} on this machine; write for example Europe/Berlin, or install tzdata"
        raise InvalidLimit(msg) from error
