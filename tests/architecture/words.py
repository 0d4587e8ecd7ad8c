"""The retired words: what to write instead, and where a retired word is still right.

`TEXT` holds for every line of the product and its documentation: names, docstrings, comments, messages, prose. `NAMES`
holds for identifiers and file names of the product only, because most of these words have an ordinary meaning in prose.
"""

from __future__ import annotations

import keyword
import re
import tokenize
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.architecture.source import PACKAGE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT: Final = {
    "somebody": "the caller, the client, another process",
    "whoever": "the caller, the client that …",
    "nobody": "no client, no process",
    "everybody": "all callers",
    "anybody": "any caller",
    "(?:is|are|was|were) away": "is unavailable",
    "while away": "while unavailable",
    "left alone": "not called; the circuit is open",
    "leaves? (?:it|them|the server) alone": "does not call; the circuit is open",
    "(?:is|are|was) back": "has recovered",
    "in force": "active",
    "shut out": "blocked",
    "lets? go": "closes, releases",
    "under way": "in flight, running",
    "strangers?": "unauthenticated caller, unknown caller",
    "lanes?": "connection",
    "doors?": "ConnectionLimiter, Acceptor, port",
    "errands?": "task",
    "couriers?": "SinkWorker",
    "witness(?:es)?": "DecisionObserver",
    "undisturbed": "gc_paused",
    "carry out|carries out|carried out": "apply, apply_edits",
    "short way": "fast path",
    "long way": "slow path",
}
"""Words and phrases, in any case; a space stands for any space, line end or underscore."""

NAMES: Final = {
    "Place|places?": "Shard, Route, Offset, ObjectStore",
    "Seal|seals?|sealed": "ReservationToken",
    "Apart|apart": "CrossSlotTake",
    "Aside|aside": "DedicatedConnection",
    "Together|together": "multi_descriptor",
    "Telling|telling": "flusher, exporter",
    "shipping": "exporter",
    "recording": "flusher",
    "Taking|taking": "DocumentApplier",
    "following|following_database": "Subscriber, subscriber",
    "announcing": "Notifier, notifier",
    "Wish|wish(?:es)?": "DesiredRules",
    "Ready": "BoundRule",
    "Step": "KeyTemplate, Decide",
    "Safety|safety": "FailurePolicy",
    "Finding|findings?": "RuleDecision",
    "Took|took": "LatencyBucket, duration",
    "Account": "DeliveryLedger",
    "shown": "short_repr",
    "asked": "request, question, the noun it holds",
    "told": "answer, message, the noun it holds",
    "came": "received, the noun it holds",
    "stood": "the noun it holds",
    "(?:[A-Z]+_)*(?:MOST|LONGEST|LARGEST)(?:_[A-Z]+)*": "MAX_X",
    "(?:[A-Z]+_)*(?:LEAST|SHORTEST)(?:_[A-Z]+)*": "MIN_X",
}
"""Identifiers, whole and without leading underscores, and names of files without their ending."""

PENDING: Final[dict[str, int]] = {
    "somebody": 137,
    "whoever": 122,
    "nobody": 241,
    "everybody": 50,
    "anybody": 37,
    "(?:is|are|was|were) away": 75,
    "left alone": 6,
    "(?:is|are|was) back": 14,
    "in force": 182,
    "shut out": 12,
    "lets? go": 58,
    "under way": 90,
    "strangers?": 11,
    "lanes?": 49,
    "doors?": 53,
    "errands?": 11,
    "couriers?": 35,
    "witness(?:es)?": 16,
    "undisturbed": 10,
    "carry out|carries out|carried out": 80,
    "short way": 12,
    "long way": 31,
    "Place|places?": 615,
    "Seal|seals?|sealed": 18,
    "Apart|apart": 18,
    "Aside|aside": 49,
    "Together|together": 30,
    "Telling|telling": 15,
    "shipping": 12,
    "recording": 16,
    "Taking|taking": 59,
    "following|following_database": 71,
    "announcing": 6,
    "Wish|wish(?:es)?": 48,
    "Ready": 6,
    "Step": 20,
    "Safety|safety": 75,
    "Finding|findings?": 86,
    "Took|took": 85,
    "Account": 14,
    "shown": 115,
    "asked": 249,
    "told": 61,
    "came": 23,
    "stood": 10,
    "(?:[A-Z]+_)*(?:MOST|LONGEST|LARGEST)(?:_[A-Z]+)*": 399,
    "(?:[A-Z]+_)*(?:LEAST|SHORTEST)(?:_[A-Z]+)*": 11,
}
"""Words of both tables that are not clean yet, with how often they still occur; the count only falls."""

ALLOWED: Final[dict[tuple[str, str], str]] = {
    (
        "Finding|findings?",
        "src/headgate/core/event.py",
    ): "`Verdict.findings` is public Python API (docs/reference/python.md)",
    (
        "Finding|findings?",
        "src/headgate/core/headers.py",
    ): "`Verdict.findings` is public Python API (docs/reference/python.md)",
    (
        "Finding|findings?",
        "src/headgate/core/problem.py",
    ): "`Verdict.findings` is public Python API (docs/reference/python.md)",
    (
        "Finding|findings?",
        "src/headgate/core/verdict.py",
    ): "`Verdict.findings` is public Python API (docs/reference/python.md)",
    (
        "Finding|findings?",
        "src/headgate/dataplane/reservations.py",
    ): "`Verdict.findings` is public Python API (docs/reference/python.md)",
}
"""(word, path below the root or its beginning): why the word is right there."""

_PROSE: Final = ("*.md", "docs/**/*.md", "docs/*.py", "bench/README.md", "examples/*", "deploy/**/*")
_ENDINGS: Final = {".py", ".lua", ".sql", ".md", ".yaml", ".yml", ".json", ".conf", ".toml", ".txt"}
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Found(NamedTuple):
    """One retired word in one line."""

    word: str
    path: str
    line: int
    text: str


@cache
def sources() -> tuple[Path, ...]:
    """The files of the product."""
    return tuple(path for path in sorted(PACKAGE.rglob("*")) if path.suffix in _ENDINGS)


@cache
def pages() -> tuple[Path, ...]:
    """The documentation, the examples and the files for deployment; not the page that is generated from the source."""
    found = {path for pattern in _PROSE for path in ROOT.glob(pattern)} - {ROOT / "docs/reference/messages.md"}
    return tuple(path for path in sorted(found) if path.suffix in _ENDINGS or path.name == "Caddyfile")


def _pattern(word: str) -> re.Pattern[str]:
    # A phrase may continue in the next line, behind the mark of a comment.
    spaced = word.replace(" ", r"(?:_|\s+(?:#|--|//)?\s*)")
    return re.compile(rf"(?<![A-Za-z])(?:{spaced})(?![A-Za-z])", re.IGNORECASE)


_TEXT_PATTERNS: Final = {word: _pattern(word) for word in TEXT}
_NAME_PATTERNS: Final = {word: re.compile(word) for word in NAMES}


def _is_allowed(word: str, path: str) -> bool:
    return any(word == allowed and path.startswith(start) for allowed, start in ALLOWED)


def in_text(path: Path) -> Iterator[Found]:
    """Every retired word of a file's text and of its name."""
    where = str(path.relative_to(ROOT))
    text = path.read_text(encoding="utf-8")
    plain = _CAMEL.sub("_", text) if path.suffix == ".py" else text
    lines = text.splitlines()
    for word, pattern in _TEXT_PATTERNS.items():
        if _is_allowed(word, where):
            continue
        if pattern.search(path.stem):
            yield Found(word, where, 0, path.name)
        for match in pattern.finditer(plain):
            line = plain.count("\n", 0, match.start())
            yield Found(word, where, line + 1, lines[line].strip())


def in_names(path: Path) -> Iterator[Found]:
    """Every retired identifier of a Python file, and its own name if that is retired."""
    where = str(path.relative_to(ROOT))
    names = [(0, path.stem, path.name)]
    if path.suffix == ".py":
        with path.open("rb") as file:
            names += [
                (token.start[0], token.string, token.line.strip())
                for token in tokenize.tokenize(file.readline)
                if token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            ]
    for line, name, text in names:
        for word, pattern in _NAME_PATTERNS.items():
            if pattern.fullmatch(name.strip("_")) and not _is_allowed(word, where):
                yield Found(word, where, line, text)


@cache
def found() -> tuple[Found, ...]:
    """Every retired word of the product and its documentation."""
    texts = [each for path in (*sources(), *pages()) for each in in_text(path)]
    return (*texts, *(each for path in sources() for each in in_names(path)))
