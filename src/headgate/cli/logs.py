"""The log of `headgate serve`: on standard error, as lines for people or as JSON objects for programs."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headgate.setting_values import LogFormat

if TYPE_CHECKING:
    from headgate.settings import Settings

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def log_to_stderr(settings: Settings, process: str = "main") -> None:
    """Standard output belongs to what people asked for.

    `process` is which of those of the service writes: supervisor, main, or the number of a worker.
    """
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format is LogFormat.JSON:
        handler.setFormatter(JsonLines(process))
        logging.captureWarnings(capture=True)
    else:
        who = f"worker {process}: " if process.isdigit() else ""
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}%(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)


class JsonLines(logging.Formatter):
    """One JSON object in a line, whatever is in it."""

    def __init__(self, worker: str) -> None:
        """`worker` is who writes."""
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """A record as text; what was given as ``extra={"fields": …}`` are members of their own."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "worker": self._worker,
            "logger": record.name,
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:  # text that is half of a character, from a file name or a header
            return ascii_line(line)


def ascii_line(line: dict[str, Any]) -> str:
    """The same, with what cannot be written as UTF-8 escaped."""
    return _encode(
        {name: str(value).encode("utf-8", "backslashreplace").decode() for name, value in line.items()}
    ).decode()
