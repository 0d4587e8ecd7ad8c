"""Download pip as requirements/pip.txt pins it, for a Python that comes without: ``python tools/get_pip.py FOLDER``.

Debian keeps `ensurepip` in a package of its own, which only root can install. Prints the name of the wheel, which
Python runs as it is. Uses PIP_INDEX_URL and PIP_CERT as pip does; only what has the pinned hash is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import sys
from base64 import b64encode
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import Request, urlopen

PINNED = Path(__file__).parents[1] / "requirements" / "pip.txt"
SECONDS = 60
# None of these sentences repeats the address: it may hold a password.
NO_ADDRESS = "PIP_INDEX_URL is not an address that begins with https:// or http://"
FAILED = "pip cannot be downloaded from the package index"
UNTRUSTED = (
    "pip cannot be downloaded: the certificate of the package index is not trusted here ({}). On Debian: sudo apt-get "
    "install ca-certificates; for an index with an authority of its own, set PIP_CERT to the file of its certificate"
)


class Index(NamedTuple):
    """A package index, its user and password apart from its address."""

    url: str
    server: str
    login: str
    trust: ssl.SSLContext

    @classmethod
    def chosen(cls) -> Index:
        """The one that the environment names."""
        parts = urlsplit(os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple")
        certificates = os.environ.get("PIP_CERT") or None
        try:
            port = parts.port
        except ValueError:
            sys.exit(NO_ADDRESS)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            sys.exit(NO_ADDRESS)
        try:
            trust = ssl.create_default_context(cafile=certificates)
        except OSError:
            sys.exit(f"PIP_CERT names no file of certificates: {certificates}")
        server = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=server, path=parts.path.rstrip("/") + "/pip/").geturl()
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        return cls(url, f"{parts.scheme}://{parts.hostname}:{port}", "" if login == ":" else login, trust)

    def get(self, url: str) -> tuple[str, bytes]:
        """The address after all redirections, and the content."""
        request = Request(url)  # noqa: S310 (an index that the user chose)
        parts = urlsplit(url)
        if (
            self.login and f"{parts.scheme}://{parts.hostname}:{parts.port}" == self.server
        ):  # to no other server, and not when redirected
            request.add_unredirected_header("Authorization", "Basic " + b64encode(self.login.encode()).decode())
        with urlopen(request, timeout=SECONDS, context=self.trust) as answer:  # noqa: S310 (as above)
            return answer.url, answer.read()


def main(folder: Path) -> str:
    """Download the wheel into a folder; returns its path, or exits with a sentence."""
    pinned = PINNED.read_text(encoding="utf-8")
    version = re.search(r"^pip==(\S+)", pinned, re.MULTILINE)
    hashes = set(re.findall(r"sha256:([0-9a-f]{64})", pinned))
    if version is None:
        sys.exit(f"{PINNED} pins no pip")
    name = f"pip-{version[1]}-py3-none-any.whl"
    index = Index.chosen()
    try:
        base, page = index.get(index.url)
        links = re.findall(r"""href=["']([^"']+)""", page.decode())
        found = [urldefrag(urljoin(base, link)).url for link in links if f"/{name}" in link]
        if not found:
            sys.exit(f"the package index does not have {name}")
        content = index.get(found[0])[1]
    except HTTPError as error:
        sys.exit(f"{FAILED}: HTTP {error.code}, {error.reason}")
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            sys.exit(UNTRUSTED.format(reason.verify_message))
        sys.exit(f"{FAILED}: {reason}; PIP_INDEX_URL can name another one")
    if hashlib.sha256(content).hexdigest() not in hashes:
        sys.exit(f"{name} from the package index is not what {PINNED.name} pins; it was not kept")
    wheel = folder / name
    wheel.write_bytes(content)
    return str(wheel)


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))  # noqa: T201 (the result)
