"""A verdict for people: one line that says it, and a row for each decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from headgate.cli.output import console, print_rows

if TYPE_CHECKING:
    from collections.abc import Mapping


def print_verdict(verdict: Mapping[str, Any]) -> None:
    """Print a verdict in the shape of `Verdict.as_dict`."""
    console().print(headline(verdict), soft_wrap=True)
    if not verdict["decisions"]:
        return
    rows = [
        (
            each["rule"],
            each["layer"],
            _answer(each),
            f"{each['limit']} per {span(each['window'])}",
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


def span(seconds: float | None) -> str:
    """A span at a glance: ``never``, ``0.25 s``, ``42 s``, ``1.5 min``, ``2 h``."""
    if seconds is None:
        return "never"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
