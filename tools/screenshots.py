"""Pictures of the dashboard and of `headgate top`, from `headgate demo`; they go into docs/pictures.

    .venv/bin/python tools/screenshots.py

It takes some three minutes: the demo needs traffic and a past before there is something to see.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from playwright.sync_api import sync_playwright
from rich.console import Console

from headgate.cli.top_screen import Screen, screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

FOLDER: Final = Path(__file__).parents[1] / "docs" / "pictures"
PAGES: Final = {"overview": "overview", "rule": "rules/rates", "user": "users/globex", "editor": "rules/rates/edit"}
SIZE: Final = {"width": 1280, "height": 800}
MAX_BYTES: Final = 200_000
FRAMES: Final = 4
SECONDS_BETWEEN: Final = 2.0
SECONDS_OF_TRAFFIC: Final = 150.0
_PATIENCE: Final = 300.0
_FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
_FONT: Final = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Of another site; every terminal font will do."""


class Demo:
    """A running demo."""

    def __init__(self, folder: Path) -> None:
        """Start it on free ports."""
        ports = [_free_port() for _ in range(3)]
        self.url = f"http://127.0.0.1:{ports[1]}"
        self._token = folder / "demo" / "admin-token"
        names = ("--port", "--admin-port", "--grpc-port")
        given = [word for pair in zip(names, map(str, ports), strict=True) for word in pair]
        command = [sys.executable, "-m", "headgate.cli.main", "demo", *given, "--data-dir", str(folder / "demo")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 (our own command)

    @property
    def token(self) -> str:
        """Of its administrator."""
        return self._token.read_text(encoding="ascii").strip()

    def get(self, path: str) -> Any:  # noqa: ANN401 (any JSON)
        """What the admin API says; None while nothing answers."""
        try:
            request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})  # noqa: S310 (our own address)
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (as above)
                return json.load(answer)
        except OSError:
            return None

    def wait(self) -> None:
        """Until the past is made up, and there was traffic for some minutes."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            days = self.get("/v1/metrics?granularity=day")
            if days and len(days["items"]) >= 7:  # noqa: PLR2004 (as many as the demo makes up)
                time.sleep(SECONDS_OF_TRAFFIC)
                return
            time.sleep(1)
        sys.exit("the demo has no past yet")

    def stop(self) -> None:
        """End it, and wait for that."""
        self.process.terminate()
        self.process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _pages(demo: Demo) -> Iterator[tuple[str, Page]]:
    """Every page in both themes, ready to be taken."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("there is no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type] # its own type of a dict
            page.goto(demo.url)
            page.fill("input[name=token]", demo.token)
            page.click("button[type=submit]")
            page.wait_for_selector("nav.nav")
            for name, path in PAGES.items():
                page.goto(f"{demo.url}/ui/#/{path}")
                page.wait_for_selector("main h1")
                page.wait_for_timeout(3_000)
                yield f"{name}-{scheme}", page
            page.close()
        browser.close()


def _top(demo: Demo) -> str:
    """Some moments of `headgate top` as one picture that moves."""
    frames = []
    for number in range(FRAMES):
        figures = {**demo.get("/v1/overview?history=120"), "hot": demo.get("/v1/hot")["counters"]}
        console = Console(record=True, width=100, file=tempfile.TemporaryFile("w"), force_terminal=True)  # noqa: SIM115 (nothing is kept)
        console.print(screen(figures, Screen("http://127.0.0.1:8081", 100, None)))
        frames.append(_FONT.sub("", console.export_svg(title="headgate top", unique_id=f"f{number}")))
        time.sleep(SECONDS_BETWEEN)
    sizes = [re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', frame) for frame in frames]
    width, height = (max(float(size[part]) for size in sizes if size) for part in (1, 2))
    seconds = FRAMES * SECONDS_BETWEEN
    style = (
        f".frame {{ visibility: hidden; animation: moment {seconds}s steps(1) infinite }} "
        f"@keyframes moment {{ 0% {{ visibility: visible }} {100 / FRAMES}% {{ visibility: hidden }} }} "
        + " ".join(f"#f{n} {{ animation-delay: {n * SECONDS_BETWEEN - seconds}s }}" for n in range(FRAMES))
    )
    inner = "\n".join(
        f'<g class="frame" id="f{number}">{frame[frame.index("<svg") :]}</g>' for number, frame in enumerate(frames)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><title>headgate top</title>'
        f"<style>{style}</style>\n{inner}</svg>\n"
    )


def main() -> None:
    """Take all of them."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder))
        try:
            demo.wait()
            (FOLDER / "top.svg").write_text(_top(demo), encoding="utf-8")
            for name, page in _pages(demo):
                page.screenshot(path=FOLDER / f"{name}.png")
        finally:
            demo.stop()
    for file in sorted(FOLDER.iterdir()):
        many = file.stat().st_size
        sys.stdout.write(f"{file.name}: {many:,} bytes\n")
        if many > MAX_BYTES:
            sys.exit(f"{file.name} is larger than {MAX_BYTES:,} bytes")


if __name__ == "__main__":
    main()
