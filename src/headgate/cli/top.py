"""`headgate top`: what happens now, on one screen that keeps moving."""

import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live

from headgate.adapters.clock import monotonic, sleep
from headgate.cli.admin_client import AdminClient, admin_settings, at, open_client
from headgate.cli.options import Json, Token, Url
from headgate.cli.output import console, print_json
from headgate.cli.running_service import of_running_service
from headgate.cli.top_screen import Screen, screen
from headgate.errors import HeadgateError, InvalidSettings, NotFound
from headgate.settings import Settings

try:
    import termios
    import tty
except ImportError:  # Windows, where only ctrl-c ends it
    HAS_KEYS = False
else:
    HAS_KEYS = True

FAILED = 1
_HISTORY: Final = 120
_USUAL_WIDTH: Final = 100
_QUIT: Final = frozenset("qQ\x03\x04")
_TICK: Final = 0.1
_NO_ADDRESS: Final = (
    "the live figures are those of a running service; set HEADGATE_ADMIN_URL and HEADGATE_ADMIN_TOKEN, or write "
    "--url http://127.0.0.1:8081 --token TOKEN"
)


def top(
    url: Url = None,
    token: Token = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.5, max=60, metavar="SECONDS", help="How often it is drawn anew.")
    ] = 1.0,
    *,
    once: Annotated[bool, typer.Option("--once", help="Draw it one time, and exit.")] = False,
    as_json: Json = False,
) -> int:
    """Watch rates, busy rules, hot counters, violators and health, live; q or ctrl-c ends it.

    With --json it prints the figures once, for programs. Where the output is no terminal, it draws once.
    """
    chosen = of_running_service(admin_settings(url, token))
    if chosen.admin_url is None:
        raise InvalidSettings(_NO_ADDRESS)
    out = console()
    if as_json or once or not out.is_terminal:
        figures = _once(chosen)
        if as_json:
            print_json(figures)
        else:
            out.width = out.width if out.is_terminal else _USUAL_WIDTH
            out.print(screen(figures, Screen(chosen.admin_url, out.width, None)))
        return 0
    with open_client(chosen) as client:
        _watch(client, chosen.admin_url, interval, out)
    return 0


def _once(chosen: Settings) -> dict[str, Any]:
    with open_client(chosen) as client:
        return _figures(client)


def _figures(client: AdminClient) -> dict[str, Any]:
    """What happens now, and the hottest counters where the service says them."""
    figures: dict[str, Any] = client.get(at("overview"), history=_HISTORY)
    try:
        hot: dict[str, Any] = client.get(at("hot"))
    except NotFound:  # a service of an earlier version
        hot = {"watched": False}
    figures["hot"] = hot["counters"] if hot["watched"] else None
    return figures


def _watch(client: AdminClient, url: str, interval: float, out: Console) -> None:
    """Draw until a key ends it. While the service is unavailable, the last figures stay, with a sentence."""
    figures: dict[str, Any] | None = None
    with _keys() as ended, Live(console=out, screen=True, auto_refresh=False, redirect_stderr=False) as live:
        while True:
            trouble = None
            try:
                figures = _figures(client)
            except HeadgateError as error:
                trouble = str(error)
            look = Screen(url, out.width, out.height, trouble)
            live.update(screen(figures, look), refresh=True)
            until = monotonic() + interval
            size = out.size
            while monotonic() < until:
                if ended():
                    return
                if out.size != size:  # the window was resized
                    break


@contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits a moment and says whether the operator has pressed a key that ends the screen."""
    if not HAS_KEYS or not sys.stdin.isatty():
        yield lambda: sleep(_TICK)
        return
    before = termios.tcgetattr(sys.stdin)

    def ended() -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], _TICK)
        return bool(ready) and sys.stdin.read(1) in _QUIT

    try:
        tty.setcbreak(sys.stdin.fileno())
        yield ended
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
