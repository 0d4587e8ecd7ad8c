"""`tools/get_pip.py` fetches the pinned pip from any index that pip itself can use, and says in a sentence why not."""

from __future__ import annotations

import hashlib
import shutil
import ssl
import subprocess
import sys
from base64 import b64encode
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOL: Final = Path(__file__).parents[2] / "tools" / "get_pip.py"
WHEEL: Final = b"not really a wheel"
NAME: Final = "pip-1.2-py3-none-any.whl"
LOGIN: Final = "Basic " + b64encode(b"ann:s3/cret@1").decode()
IN_ADDRESS: Final = "ann:s3%2Fcret%401@"


class _Index(BaseHTTPRequestHandler):
    """A package index that wants a password, and links to a file beside the page."""

    def do_GET(self) -> None:
        if self.headers["Authorization"] != LOGIN:
            self.send_error(401)
            return
        link = f'<a href="../../files/{NAME}#sha256=00">{NAME}</a>'.encode()
        answer = {"/simple/pip/": link, f"/files/{NAME}": WHEEL}.get(self.path)
        if answer is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Index)
    Thread(target=partial(server.serve_forever, poll_interval=0.01), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def _run(folder: Path, url: str, *, wheel: bytes = WHEEL, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of it, beside requirements that pin `wheel`."""
    for name in ("tools", "requirements"):
        (folder / name).mkdir()
    tool = shutil.copy(TOOL, folder / "tools")
    pinned = f"pip==1.2 \\\n    --hash=sha256:{hashlib.sha256(wheel).hexdigest()}\n"
    (folder / "requirements" / "pip.txt").write_text(pinned)
    command = [sys.executable, str(tool), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PIP_INDEX_URL": url, **env})  # noqa: S603 (ours)


def _address(index: ThreadingHTTPServer, login: str, scheme: str = "http") -> str:
    return f"{scheme}://{login}127.0.0.1:{index.server_port}/simple/"


def test_the_index_may_want_a_password(index: ThreadingHTTPServer, tmp_path: Path) -> None:
    """One in the address is sent, as pip does it, also for the file on the same server."""
    ended = _run(tmp_path, _address(index, IN_ADDRESS))
    assert (ended.stdout, ended.stderr) == (f"{tmp_path / NAME}\n", "")
    assert (tmp_path / NAME).read_bytes() == WHEEL


@pytest.mark.parametrize("login", ["", "ann:wr0ng@"])
def test_a_wrong_password_is_a_sentence(index: ThreadingHTTPServer, tmp_path: Path, login: str) -> None:
    """It says what the index answered, and repeats no password."""
    ended = _run(tmp_path, _address(index, login))
    assert ended.returncode == 1
    assert ended.stderr == "pip cannot be downloaded from the package index: HTTP 401, Unauthorized\n"


def test_another_wheel_is_not_kept(index: ThreadingHTTPServer, tmp_path: Path) -> None:
    """Only what has the pinned hash is."""
    ended = _run(tmp_path, _address(index, IN_ADDRESS), wheel=b"another")
    assert ended.stderr == f"{NAME} from the package index is not what pip.txt pins; it was not kept\n"
    assert not (tmp_path / NAME).exists()


@pytest.fixture
def authority(index: ThreadingHTTPServer, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """That of the certificate that the index has from here on."""
    made = Authority(tmp_path_factory.mktemp("authority"), "company")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*made.certificate("index"))
    index.socket = context.wrap_socket(index.socket, server_side=True)
    return made


def test_an_unknown_certificate_names_the_remedy(
    index: ThreadingHTTPServer, authority: Authority, tmp_path: Path
) -> None:
    """As on a Debian without the package ca-certificates."""
    assert authority.file.exists()
    ended = _run(tmp_path, _address(index, IN_ADDRESS, "https"))
    assert ended.returncode == 1
    assert ended.stderr == (
        "pip cannot be downloaded: the certificate of the package index is not trusted here (unable to get local "
        "issuer certificate). On Debian: sudo apt-get install ca-certificates; for an index with an authority of its "
        "own, set PIP_CERT to the file of its certificate\n"
    )


def test_pip_cert_is_used(index: ThreadingHTTPServer, authority: Authority, tmp_path: Path) -> None:
    """The file that pip trusts is trusted here, too."""
    ended = _run(tmp_path, _address(index, IN_ADDRESS, "https"), PIP_CERT=str(authority.file))
    assert ended.stderr == ""
    assert (tmp_path / NAME).read_bytes() == WHEEL


@pytest.mark.parametrize(
    ("url", "env", "sentence"),
    [
        ("http://127.0.0.1:1/simple", {}, "pip cannot be downloaded from the package index: "),
        ("simple", {}, "PIP_INDEX_URL is not an address that begins with https:// or http://"),
        ("http://ann:secret@h:port/simple", {}, "PIP_INDEX_URL is not an address that begins with https:// or http://"),
        ("https://127.0.0.1:1/simple", {"PIP_CERT": "/nowhere"}, "PIP_CERT names no file of certificates: /nowhere"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, url: str, env: dict[str, str], sentence: str) -> None:
    """No traceback, and no password."""
    ended = _run(tmp_path, url, wheel=WHEEL, **env)
    assert ended.returncode == 1
    assert ended.stderr.startswith(sentence)
    assert ended.stderr.count("\n") == 1
    assert "secret" not in ended.stderr
