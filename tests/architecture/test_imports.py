"""A program loads what it uses: counters in memory need no client of a server, and no third-party package at all."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

import headgate

_REPORT: Final = "import json, sys; print(json.dumps([*sys.modules]))"
_SLICES: Final = ("archive", "backup", "cli", "controlplane", "protocols", "simulate", "testing")
_SERVERS: Final = ("adapters.embedded", "adapters.kafka", "adapters.postgres", "adapters.redis", "adapters.spool")
_THIRD_PARTY: Final = frozenset(
    {
        "asyncpg",
        "cryptography",
        "fastapi",
        "hiredis",
        "httpx",
        "jwt",
        "limits",
        "msgspec",
        "opentelemetry",
        "redis",
        "rich",
        "starlette",
        "typer",
        "uvloop",
        "yaml",
    }
)
_RULES: Final = "[{'name': 'api', 'limits': '5/minute'}]"
_PROGRAMS: Final = {
    "import headgate": "import headgate",
    "Limiter.open": f"import headgate; headgate.Limiter.open('memory://', {_RULES})",
    "bare keys": "import headgate.sync; headgate.sync.Limiter.open('memory://').hit('login', '5/minute')",
    "ASGI": f"import headgate.asgi; headgate.asgi.RateLimitMiddleware(None, 'memory://', {_RULES})",
    "WSGI": f"import headgate.wsgi; headgate.wsgi.RateLimitMiddleware(None, 'memory://', {_RULES})",
}
MAX_MODULES: Final = 240 if sys.version_info < (3, 13) else 250
"""Of `import headgate`, those of the standard library included; the library `limits` loads about 250."""


def _loaded(program: str) -> set[str]:
    """The modules that a new interpreter has after a program."""
    ran = subprocess.run([sys.executable, "-c", f"{program}\n{_REPORT}"], check=True, capture_output=True, text=True)  # noqa: S603 (our own code)
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize("program", [pytest.param(text, id=name) for name, text in _PROGRAMS.items()])
def test_a_limiter_in_memory_loads_no_server(program: str) -> None:
    """No third-party package is loaded, no adapter of a server, and nothing of the service around the limiter."""
    loaded = _loaded(program)
    assert {name.partition(".")[0] for name in loaded} & _THIRD_PARTY == set()
    unwanted = tuple(f"headgate.{part}" for part in (*_SERVERS, *_SLICES))
    assert [name for name in sorted(loaded) if name.startswith(unwanted)] == []


@pytest.mark.parametrize("program", [_PROGRAMS["import headgate"], _PROGRAMS["Limiter.open"]])
def test_the_library_loads_no_middleware_and_few_modules(program: str) -> None:
    """`import headgate` takes the core, the data plane, the store in memory and their wiring, and nothing else."""
    loaded = _loaded(program)
    assert [name for name in sorted(loaded) if name.startswith("headgate.edge")] == []
    assert len(loaded) <= MAX_MODULES


def test_a_limiter_without_rules_loads_no_parser() -> None:
    """Reading rules and settings takes a tenth of the time of an import, so who has neither does not load it."""
    loaded = _loaded("import headgate; headgate.Limiter.open('memory://')")
    assert loaded & {"headgate.settings", "headgate.setting_fields", "headgate.core.parsing.rule_set"} == set()
    assert "headgate.core.parsing.rule_set" in _loaded("from headgate import parse_rule_set")


def test_names_that_the_package_does_not_have_are_refused() -> None:
    """Names that are loaded on first use are public, and a name that is none of them says so."""
    assert all(hasattr(headgate, name) for name in headgate.__all__)
    with pytest.raises(AttributeError, match="module 'headgate' has no attribute 'Limter'"):
        headgate.Limter  # type: ignore[attr-defined] # noqa: B018 (as a program with a typing error has it)


def test_a_limiter_on_redis_loads_its_client() -> None:
    """These tests see what is loaded later: the same program with another address loads the Redis adapter."""
    assert "headgate.adapters.redis" in _loaded("import headgate; headgate.Limiter.open('redis://127.0.0.1:1')")
