"""An earlier version of the product: the wheel of a commit, installed apart from the one under test."""

from __future__ import annotations

import io
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install(commit: str, folder: Path) -> Path:
    """Build the wheel of a commit and install it in an environment of its own; returns its Python.

    Its dependencies are those of this environment, whose own headgate it does not see.
    """
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S603, S607 (git)
    source = folder / "source"
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(source, filter="data")
    subprocess.run(  # noqa: S603 (our own build)
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")],
        cwd=source,
        capture_output=True,
        check=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as unpacking:
        unpacking.extractall(packages)  # noqa: S202 (our own wheel)
    # A .pth in there is not read, so the editable headgate of this environment stays out.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "venv" / "bin" / "python"


def has(commit: str) -> bool:
    """Whether the repository is there, with that commit."""
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0  # noqa: S603 (git)
