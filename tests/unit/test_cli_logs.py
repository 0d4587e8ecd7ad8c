from __future__ import annotations

import json
import logging
import sys
from typing import Any

from headgate.cli.logs import JsonLines


def written(message: str, *arguments: object, **about: Any) -> dict[str, Any]:  # noqa: ANN401 (of a log record)
    record = logging.LogRecord(
        "headgate", logging.WARNING, __file__, 1, message, arguments, about.pop("exc_info", None)
    )
    record.__dict__.update(about)
    text = JsonLines("7").format(record)
    assert "\n" not in text
    text.encode()
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_line_says_when_who_and_what() -> None:
    """Time, level, message, worker and logger are members, and so are fields that were given."""
    line = written("%s is down", "127.0.0.1:6379", created=1_700_000_000.0625, fields={"decision": "abc", "n": 2})
    assert line == {
        "time": "2023-11-14T22:13:20.062Z",
        "level": "warning",
        "message": "127.0.0.1:6379 is down",
        "worker": "7",
        "logger": "headgate",
        "decision": "abc",
        "n": 2,
    }


def test_an_exception_is_in_the_same_line() -> None:
    """A traceback is one member, and so is a stack."""
    try:
        int("two\nlines")
    except ValueError:
        line = written("failed", exc_info=sys.exc_info(), stack_info="Stack:\n  here")
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("'two\\nlines'")
    assert line["stack"] == "Stack:\n  here"
    assert "exception" not in written("fine", exc_info=(None, None, None))


def test_whatever_is_said_can_be_written() -> None:
    """Quotes, line ends, half characters and values of any type are no trouble."""
    assert written('a "quoted"\nline\t\x00')["message"] == 'a "quoted"\nline\t\x00'
    assert written("half a character: \udcff", fields={"n": 1})["message"] == "half a character: \\udcff"
    assert written("odd", fields={"what": object})["what"] == "<class 'object'>"
