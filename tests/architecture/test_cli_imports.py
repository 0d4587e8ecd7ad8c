"""A command loads what its verb needs, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest
from tests.architecture.source import ROOT

RULES: Final = str(ROOT / "examples" / "rules.yaml")
NOWHERE: Final = ("--url", "http://127.0.0.1:1")
ADMIN: Final = (*NOWHERE, "--token", "t")
HEAVY: Final = frozenset(
    {
        *("asyncpg", "confluent_kafka", "cryptography", "duckdb", "fastapi", "granian", "hpack", "jwt", "msgspec"),
        *("multiprocessing", "numpy", "opentelemetry", "pyarrow", "starlette", "uvloop"),
        *("headgate.adapters.embedded", "headgate.adapters.postgres", "headgate.adapters.redis"),
        *("headgate.archive", "headgate.backup", "headgate.controlplane.runtime", "headgate.edge", "headgate.simulate"),
    }
)
_CHILD: Final = """
import contextlib, io, json, sys
from headgate.cli.commands import run
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    run(sys.argv[1:])
print(json.dumps(list(sys.modules)))
"""


def modules(*words: str) -> set[str]:
    """The modules of a Python process that has run a command."""
    done = subprocess.run([sys.executable, "-c", _CHILD, *words], capture_output=True, check=True, text=True)  # noqa: S603 (ours)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("check", "--user", "u1", *NOWHERE),
        ("check", "--user", "u1", "--rules", RULES),
        ("rules", "validate", RULES),
        ("tiers", "list", *ADMIN),
        ("quota", "u1", *ADMIN),
        ("events", *ADMIN),
        ("users", "load", "missing.csv"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_verb_loads_no_more_than_it_needs(words: tuple[str, ...]) -> None:
    """A verb that opens no server loads no driver, no server, no framework, and no other feature."""
    assert modules(*words) & HEAVY == set()


def test_help_loads_no_verb() -> None:
    """`headgate --help` reads what each verb does from its docstring, without importing it."""
    loaded = {name.removeprefix("headgate.cli.") for name in modules("--help") if name.startswith("headgate.cli.")}
    assert loaded == {"commands", "examples", "extras", "failures", "output", "tables"}


def test_the_test_sees_what_is_loaded() -> None:
    """A verb that needs the database, and only that, loads its driver."""
    loaded = modules("db", "status", "--url", "postgresql://u:p@127.0.0.1:1/none")
    assert loaded & HEAVY == {"asyncpg", "headgate.adapters.embedded", "headgate.adapters.postgres"}
