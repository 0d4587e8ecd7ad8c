"""A verdict for people: one line that says it, and a row for each decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from headgate.cli.output import print_line, print_rows
from headgate.core.units import SECOND, format_period

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONG: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_MILLISECOND: Final = 0.001
_SHORT: Final = 0.01
"""Below so many seconds a span is in a smaller unit."""
_WHOLE_FROM: Final = 100
"""From here on a number has no decimals."""


def print_verdict(verdict: Mapping[str, Any]) -> None:
    """Print a verdict in the shape of `Verdict.as_dict`."""
    print_line(headline(verdict))
    if not verdict["decisions"]:
        return
    rows = [
        (
            each["rule"],
            each["layer"],
            _answer(each),
            limit_in_words(each["limit"], each["window"]),
            f"{each['remaining']}",
            span(each["reset_after"]),
            "" if each["allowed"] else span(each["retry_after"]),
            f"{each['cost']}",
        )
        for each in verdict["decisions"]
    ]
    numbers = ("limit", "left", "full in", "retry in", "cost")
    print_rows(("rule", "layer", "answer", *numbers), rows, numbers=numbers)


def headline(verdict: Mapping[str, Any]) -> Text:
    """The verdict in one line."""
    policy = verdict["policy"]
    if verdict["allowed"]:
        if verdict["remaining"] is None:
            why = f"exempt by {policy}" if policy else "no rule limits it"
        else:
            why = f"{verdict['remaining']} of {verdict['limit']} left under {policy}"
        held = f", to be held for {span(verdict['delay'])}" if verdict["delay"] else ""
        return Text.assemble(("ALLOWED", "bold green"), f"  {why}{held}")
    wait = verdict["retry_after"]
    when = "it can never pass" if wait is None else f"try again in {span(wait)}"
    return Text.assemble(("DENIED", "bold red"), f"  by {policy}; {when}")


def _answer(decision: Mapping[str, Any]) -> Text:
    word, style = ("allowed", "green") if decision["allowed"] else ("denied", "red")
    return Text(f"{word} (watched)" if decision["shadow"] else word, style)


def limit_in_words(amount: int, seconds: float) -> str:
    """A limit as rules have it: ``10/minute``, ``100/15m``."""
    return f"{amount}/{format_period(round(seconds * SECOND))}"


def span(seconds: float | None) -> str:
    """A span at a glance: ``never``, ``1 us``, ``2.5 ms``, ``0.25 s``, ``42 s``, ``1.5 min``, ``2 h``."""
    if seconds is None:
        return "never"
    for size, unit in _LONG:
        if seconds >= size:
            many = seconds / size
            return f"{many:,.0f} {unit}" if many >= _WHOLE_FROM else f"{many:.3g} {unit}"
    if 0 < seconds < _SHORT:
        return f"{seconds * 1e3:.3g} ms" if seconds >= _MILLISECOND else f"{seconds * 1e6:.3g} us"
    return f"{seconds:.3g} s"
