"""Every package of an extra is named with the extra that brings it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from headgate.cli.extras import missing_package

ROOT = Path(__file__).parents[2]


def test_each_package_is_installed_by_its_extra() -> None:
    """What the sentence tells people to install brings the package that is missing."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    modules = packages_distributions()
    asked = 0
    for extra in extras.keys() - {"all", "standard", "gateway"}:  # two bundle others; Envoy is a program
        for requirement in extras[extra]:
            name = re.split(r"[\[><=; ]", requirement)[0]
            for module in (
                module for module, names in modules.items() if name in names and not module.startswith(("_", "adbc"))
            ):
                sentence = missing_package(ModuleNotFoundError(name=module), "this command") or ""
                assert sentence.endswith(f"pip install 'headgate[{extra}]'"), requirement
                asked += 1
    assert asked > len(extras)
