"""Download pip as requirements/pip.txt pins it, for a Python that comes without: ``python tools/get_pip.py FOLDER``.

Debian keeps `ensurepip` in a package of its own, which only root can install. Prints the name of the wheel, which
Python runs as it is. Uses the index of PIP_INDEX_URL if that is set; only what has the pinned hash is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urldefrag, urljoin
from urllib.request import urlopen

PINNED = Path(__file__).parents[1] / "requirements" / "pip.txt"
SECONDS = 60


def main(folder: Path) -> str:
    """Download the wheel into a folder; returns its path, or exits with a sentence."""
    pinned = PINNED.read_text(encoding="utf-8")
    version = re.search(r"^pip==(\S+)", pinned, re.MULTILINE)
    hashes = set(re.findall(r"sha256:([0-9a-f]{64})", pinned))
    if version is None:
        sys.exit(f"{PINNED} pins no pip")
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    name = f"pip-{version[1]}-py3-none-any.whl"
    try:
        with urlopen(index, timeout=SECONDS) as page:  # noqa: S310 (an index that the user chose)
            links = re.findall(r"""href=["']([^"']+)""", page.read().decode())
        found = [urldefrag(urljoin(page.url, link)).url for link in links if f"/{name}" in link]
        if not found:
            sys.exit(f"the package index does not have {name}")
        with urlopen(found[0], timeout=SECONDS) as file:  # noqa: S310 (the hash is checked)
            content = file.read()
    except (URLError, TimeoutError, ConnectionError) as error:
        # The address is not repeated: it may hold a password.
        sys.exit(f"pip cannot be downloaded from the package index: {getattr(error, 'reason', error)}")
    if hashlib.sha256(content).hexdigest() not in hashes:
        sys.exit(f"{name} from the package index is not what {PINNED.name} pins; it was not kept")
    wheel = folder / name
    wheel.write_bytes(content)
    return str(wheel)


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))  # noqa: T201 (the result)
