"""The retired words: what to write instead, and where a retired word is still right.

`TEXT` holds for every line of the product, its documentation, its tests and its benchmarks: names, docstrings,
comments, messages, prose. `NAMES` holds for identifiers and file names of the product only, because most of these words
have an ordinary meaning in prose.
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

_MIGRATIONS: Final = "src/headgate/adapters/postgres/sql/migrations"
_HASHED: Final = "a migration never changes: its digest is stored in every database that applied it"
_BY: Final = "a public value of the parameter `by`"
_FOLLOWING: Final = "a public member of GET /v1/processes, and a column"
_CARRIED_OUT: Final = "a public member of the JSON that `headgate db migrate` prints"
_FINDINGS: Final = "`Verdict.findings` is public Python API (docs/reference/python.md)"

ALLOWED: Final[dict[tuple[str, str], str]] = {
    ("somebody", _MIGRATIONS): _HASHED,
    ("whoever", _MIGRATIONS): _HASHED,
    ("nobody", _MIGRATIONS): _HASHED,
    ("everybody", _MIGRATIONS): _HASHED,
    ("in force", _MIGRATIONS): _HASHED,
    ("anybody", "src/headgate/adapters/postgres/sql/queries/events.sql"): _BY,
    ("anybody", "src/headgate/cli/activity.py"): _BY,
    ("anybody", "src/headgate/controlplane/activity.py"): _BY,
    ("anybody", "src/headgate/edge/admin/endpoints/activity.py"): _BY,
    ("anybody", "src/headgate/edge/overview/overview.py"): _BY,
    ("anybody", "docs/how-to/answer-questions.md"): _BY,
    ("anybody", "docs/reference/admin-api.md"): _BY,
    ("anybody", "docs/reference/cli.md"): _BY,
    ("carry out|carries out|carried out", "src/headgate/cli/db.py"): _CARRIED_OUT,
    ("carry out|carries out|carried out", "docs/reference/cli.md"): _CARRIED_OUT,
    ("following|following_database", "src/headgate/controlplane/processes.py"): _FOLLOWING,
    ("following|following_database", "src/headgate/edge/admin/endpoints/processes.py"): _FOLLOWING,
    ("nobody", "docs/how-to/use-postgres.md"): "the name of a user of the operating system",
    ("anybody", "bench/events.py"): _BY,
    ("anybody", "tests/integration/test_analytics.py"): _BY,
    ("carry out|carries out|carried out", "tests/integration/test_db_commands.py"): _CARRIED_OUT,
    ("Finding|findings?", "src/headgate/core/event.py"): _FINDINGS,
    ("Finding|findings?", "src/headgate/core/headers.py"): _FINDINGS,
    ("Finding|findings?", "src/headgate/core/problem.py"): _FINDINGS,
    ("Finding|findings?", "src/headgate/core/verdict.py"): _FINDINGS,
    ("Finding|findings?", "src/headgate/dataplane/reservations.py"): _FINDINGS,
    ("Finding|findings?", "src/headgate/dataplane/waiting.py"): _FINDINGS,
}
"""(word, path below the root or its beginning): why the word is right there."""

_PROSE: Final = ("*.md", "docs/**/*.md", "docs/*.py", "bench/README.md", "examples/*", "deploy/**/*")
_ENDINGS: Final = {".py", ".lua", ".sql", ".md", ".yaml", ".yml", ".json", ".conf", ".cfg", ".toml", ".txt"}
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


@cache
def tests_and_benchmarks() -> tuple[Path, ...]:
    """The tests and the benchmarks, with their figures; not this folder, which names the retired words."""
    found = {path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*") if path.suffix in _ENDINGS}
    here = ROOT / "tests/architecture"
    return tuple(path for path in sorted(found - set(pages())) if here not in path.parents)


def _pattern(words: str) -> re.Pattern[str]:
    # A phrase may continue in the next line, behind the mark of a comment.
    spaced = words.replace(" ", r"(?:_|\s+(?:#|--|//)?\s*)")
    return re.compile(rf"(?<![A-Za-z])(?:{spaced})(?![A-Za-z])", re.IGNORECASE)


_TEXT_PATTERNS: Final = {word: _pattern(word) for word in TEXT}
_ANY_TEXT: Final = _pattern("|".join(TEXT))
_NAME_PATTERNS: Final = {word: re.compile(word) for word in NAMES}


def _is_allowed(word: str, path: str) -> bool:
    return any(word == allowed and path.startswith(start) for allowed, start in ALLOWED)


def in_text(path: Path) -> Iterator[Found]:
    """Every retired word of a file's text and of its name."""
    where = str(path.relative_to(ROOT))
    text = path.read_text(encoding="utf-8")
    plain = _CAMEL.sub("_", text) if path.suffix == ".py" else text
    if not _ANY_TEXT.search(plain) and not _ANY_TEXT.search(path.stem):
        return  # nearly every file: looked through once, not for each word
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
        for word in _retired(name.strip("_")):
            if not _is_allowed(word, where):
                yield Found(word, where, line, text)


@cache
def _retired(name: str) -> tuple[str, ...]:
    return tuple(word for word, pattern in _NAME_PATTERNS.items() if pattern.fullmatch(name))


@cache
def found() -> tuple[Found, ...]:
    """Every retired word of the product and its documentation."""
    texts = [each for path in (*sources(), *pages()) for each in in_text(path)]
    return (*texts, *(each for path in sources() for each in in_names(path)))


@cache
def found_in_tests() -> tuple[Found, ...]:
    """Every retired word of the tests and the benchmarks."""
    return tuple(each for path in tests_and_benchmarks() for each in in_text(path))
