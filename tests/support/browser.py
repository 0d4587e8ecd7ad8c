"""A real Chromium for tests of the dashboard, and a page that is signed in."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING: Final = "there is no Chromium on this machine; install Debian's package chromium to test the dashboard"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window; skips the test if there is none."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (slow to import, and only here)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page of the dashboard, and everything that went wrong on it."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:  # noqa: ANN401 (Playwright's own)
        """`options` are those of a browser context."""
        self.url = url
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))

    def _note(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.elsewhere.append(url)

    def sign_in(self, token: str) -> Watched:
        """Sign in, and be on the first page."""
        self.page.goto(f"{self.url}/")
        self.page.fill("input[name=token]", token)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("nav.nav", state="attached")
        return self

    def go(self, path: str, title: str | re.Pattern[str] | None = None) -> Page:
        """Turn to a page and wait until it is there."""
        self.page.goto(f"{self.url}/ui/#/{path}")
        if title is None:
            self.page.wait_for_selector("main h1")
        else:
            self.page.get_by_role("heading", level=1, name=title).wait_for()
        return self.page

    def close(self) -> None:
        """Close it, and fail if anything went wrong before: closing cuts off calls in flight, which is no mistake."""
        errors, elsewhere = list(self.errors), list(self.elsewhere)
        self.context.close()
        assert errors == [], errors
        assert elsewhere == [], elsewhere
