"""Compare pinned requirements with known vulnerabilities: ``python tools/check_deps.py PIP-AUDIT LIST...``.

Asks PyPI, and OSV about what PyPI does not know: many mirrors of PyPI have its packages but not its advisories. Ends
with 1 if a package has a known vulnerability, and says in a line of its own what could not be asked. In CI (if the
variable CI is set) that is a failure too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

_SERVICES: Final = {"pypi": "PyPI's JSON API", "osv": "api.osv.dev"}

_MAX_REASON: Final = 120


class Audit(NamedTuple):
    """What a service says about packages, by name."""

    clean: set[str]
    vulnerable: dict[str, str]
    skipped: set[str]
    reason: str
    """Why the service could not be asked at all; empty if it could."""


def audit(pip_audit: str, service: str, requirements: Path) -> Audit:
    """Ask one service about one list."""
    command = [pip_audit, "-s", service, "--format", "json", "--progress-spinner", "off"]
    command += ["--disable-pip", "--require-hashes", "-r", str(requirements)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (the auditor)
    try:
        found: list[dict[str, Any]] = json.loads(ended.stdout)["dependencies"]
    except (ValueError, LookupError):
        last = (ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[-1]
        return Audit(set(), {}, set(), last if len(last) <= _MAX_REASON else f"no answer ({last.partition(':')[0]})")
    vulnerable = {each["name"]: _ids(each) for each in found if each.get("vulns")}
    skipped = {each["name"] for each in found if "skip_reason" in each}
    return Audit({each["name"] for each in found} - skipped - vulnerable.keys(), vulnerable, skipped, "")


def _ids(dependency: dict[str, Any]) -> str:
    return f"{dependency['version']}: " + ", ".join(sorted(each["id"] for each in dependency["vulns"]))


def only(requirements: Path, names: set[str], folder: Path) -> Path:
    """A list of some of the packages, with their hashes."""
    lines, is_kept = [], False
    for line in requirements.read_text(encoding="utf-8").splitlines():
        if line[:1].isalnum():
            is_kept = line.partition("==")[0].partition("[")[0].strip() in names
        if is_kept and not line.lstrip().startswith("#"):
            lines.append(line)
    part = folder / requirements.name
    part.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return part


def check(pip_audit: str, requirements: Path) -> tuple[bool, bool]:
    """Say what is known about one list; returns whether nothing is wrong, and whether all could be asked."""
    asked = audit(pip_audit, "pypi", requirements)
    clean, vulnerable, unasked = set(asked.clean), dict(asked.vulnerable), asked.skipped
    why = asked.reason or f"{_SERVICES['pypi']} has no entry for them"
    if unasked or asked.reason:
        with tempfile.TemporaryDirectory() as folder:
            rest = only(requirements, unasked, Path(folder)) if unasked else requirements
            more = audit(pip_audit, "osv", rest)
        clean |= more.clean
        vulnerable |= more.vulnerable
        if more.reason:
            why += f", and {_SERVICES['osv']}: {more.reason}"
        else:
            unasked = more.skipped
    for name, ids in vulnerable.items():
        print(f"FAILED   {requirements.name}: {name} {ids}")  # noqa: T201 (the result)
    if clean:
        print(f"ok       {requirements.name}: {len(clean)} packages have no known vulnerability")  # noqa: T201 (as above)
    is_whole = not unasked and bool(clean or vulnerable)
    if not is_whole:
        many = f"{len(unasked)} packages" if unasked else "nothing"
        which = "were not asked about" if unasked else "could be asked"
        print(f"missing  {requirements.name}: {many} {which}: {why}")  # noqa: T201 (as above)
    return not vulnerable, is_whole


def main(pip_audit: str, *lists: str) -> int:
    """Check all lists; returns the exit code."""
    results = [check(pip_audit, Path(each)) for each in lists]
    is_whole = all(whole for _, whole in results)
    if not is_whole:
        print("missing  advisories: run this where PyPI itself or api.osv.dev is reached, before a release")  # noqa: T201
    return 0 if all(fine for fine, _ in results) and (is_whole or not os.environ.get("CI")) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
