"""The report of a simulation as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text as Styled

from headgate.cli.output import console, moment, print_rows
from headgate.cli.tables import printable
from headgate.cli.verdict_table import span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STYLES: Final = {"denied": "red", "blocked": "red", "throttled": "yellow", "shadow": "yellow", "allowed": "green"}
_MAX_ROWS: Final = 5
_LABEL: Final = 18
_MAX_STEPS: Final = 24
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def print_report(found: Mapping[str, Any], seconds: float) -> None:
    """Print a report as `headgate.simulate.report` makes it."""
    if found["sampled"] is not None:  # before any number that it makes too small
        console().print(Styled(f"A sample: {found['sampled']['sentence']}", "bold yellow"), soft_wrap=True)
    _headline(found, seconds)
    _sides(found)
    _by_rule(found)
    _subjects(found)
    _first_denials(found)
    if found["difference"] is not None:
        _difference(f"compared with {found['against']['rules']}", found["difference"])
    if found["recorded"] is not None:
        _recorded(found)
    _timeline(found)
    _demand(found["demand"])
    out = console()
    if found["skipped"]["examples"]:
        _heading("skipped")
        for sentence in found["skipped"]["examples"]:
            out.print(Styled(printable(sentence), "dim"), soft_wrap=True)
    for sentence in found["undecidable"]["reasons"]:
        out.print(Styled(printable(sentence), "dim"), soft_wrap=True)
    if found["notes"]:
        _heading("notes")
        for sentence in found["notes"]:
            out.print(Styled.assemble(("· ", "yellow"), sentence))


def _headline(found: Mapping[str, Any], seconds: float) -> None:
    out, draft = console(), found["draft"]
    denied = _denied(draft)
    requests = "requests" if found["sampled"] is None else "recorded requests"
    words = f"{denied:,} of {found['requests']:,} {requests} would have been denied"
    share = f"  ({_percent(draft['share_denied'])})" if found["requests"] else ""
    out.print(Styled.assemble((words, "bold red" if denied else "bold green"), share), soft_wrap=True)
    when = f"from {moment(found['first'])} to {moment(found['last'])}, " if found["first"] else ""
    rate = 60 * (found["requests"] + found["warming"]) / max(0.001, seconds)
    out.print(Styled(f"{when}in {seconds:.1f} s, {rate / 1e6:.1f} million a minute", "dim"), soft_wrap=True)


def _sides(found: Mapping[str, Any]) -> None:
    sides = [each for each in (found["draft"], found["against"]) if each is not None]
    kinds = ("allowed", "throttled", "shadow", "denied", "blocked")
    rows = [[side["rules"], *(f"{side[kind]:,}" for kind in kinds), _percent(side["share_denied"])] for side in sides]
    print_rows(("rules", *kinds, "share denied"), rows, numbers=[*kinds, "share denied"])


def _by_rule(found: Mapping[str, Any]) -> None:
    rows = found["draft"]["by_rule"]
    if not rows:
        return
    against = found["against"]
    before = {} if against is None else {each["rule"]: _denied(each) for each in against["by_rule"]}
    kinds = [kind for kind in ("shadow", "throttled") if any(each[kind] for each in rows)]
    headings = ["rule", "requests", "denied", *([] if against is None else ["denied (against)"]), *kinds, "first (UTC)"]
    cells: list[list[str | Styled]] = []
    for each in rows:
        denied = _denied(each)
        row: list[str | Styled] = [
            each["rule"],
            "" if each["requests"] is None else f"{each['requests']:,}",
            Styled(f"{denied:,}", "red" if denied else ""),
        ]
        if against is not None:
            row.append(f"{before.get(each['rule'], 0):,}")
        cells.append([*row, *(f"{each[kind]:,}" for kind in kinds), moment(each["first"])])
    print_rows(headings, cells, numbers=headings[1:-1])


def _denied(each: Mapping[str, Any]) -> int:
    return int(each["denied"] + each["blocked"])


def _subjects(found: Mapping[str, Any]) -> None:
    subjects = found["subjects"]
    if not subjects["worst"]:
        return
    _heading(f"subjects: {subjects['denied']:,} of {subjects['known']:,} would have been denied at least once")
    headings = ["subject", "requests", "denied", "by"]
    if found["against"] is not None:
        headings.insert(3, "denied (against)")
    rows = []
    for each in subjects["worst"]:
        rules = sorted(each["rules"].items(), key=lambda rule: -rule[1])
        row = [_subject(each), f"{each['requests']:,}", f"{each['denied']:,}", ", ".join(name for name, _ in rules)]
        if found["against"] is not None:
            row.insert(3, f"{each['denied_against']:,}")
        rows.append(row)
    print_rows(headings, rows, numbers=["requests", "denied", "denied (against)"], long=["by"])


def _first_denials(found: Mapping[str, Any]) -> None:
    denials = found["draft"]["first_denials"][:_MAX_ROWS]
    if not denials:
        return
    _heading("first denials")
    rows = [
        (
            moment(each["at"], precise=True),
            _subject(each["subject"]),
            _request(each),
            each["rule"] or "",
            each["limit"] or "",
            "never" if each["retry_after"] is None else span(each["retry_after"]),
        )
        for each in denials
    ]
    print_rows(("at (UTC)", "subject", "request", "rule", "limit", "retry in"), rows, numbers=["retry in"])


def _difference(heading: str, difference: Mapping[str, Any]) -> None:
    out = console()
    _heading(heading)
    newly, no_longer, otherwise = (difference[name] for name in ("newly_denied", "no_longer_denied", "otherwise"))
    if not (newly or no_longer or otherwise):
        out.print(
            Styled.assemble(("the same", "bold green"), f"  {difference['compared']:,} of {difference['compared']:,}")
        )
        return
    words = [
        Styled(f"{newly:,} newly denied", "red" if newly else ""),
        Styled(f"{no_longer:,} no longer denied", "green" if no_longer else ""),
        Styled(f"{difference['denied_by_both']:,} denied by both"),
        Styled(f"{difference['passed_by_both']:,} allowed by both"),
    ]
    if otherwise:
        words.append(Styled(f"{otherwise:,} differ in rule or kind"))
    out.print(Styled(", ").join(words), soft_wrap=True)
    rows = [
        (
            moment(each["at"], precise=True),
            _subject(each["subject"]),
            _request(each),
            _decision(each),
            _decision(each["against"]),
        )
        for each in difference["examples"][:_MAX_ROWS]
    ]
    print_rows(("at (UTC)", "subject", "request", "draft", "against"), rows)


def _recorded(found: Mapping[str, Any]) -> None:
    recorded = found["recorded"]
    _difference("compared with the recorded decisions", recorded["draft"])
    against = recorded["against"]
    if against is not None:
        same = against["compared"] - against["newly_denied"] - against["no_longer_denied"] - against["otherwise"]
        console().print(
            Styled(
                f"{found['against']['rules']}: {same:,} of {against['compared']:,} match the recorded decisions", "dim"
            ),
            soft_wrap=True,
        )


def _timeline(found: Mapping[str, Any]) -> None:
    """One line of blocks for requests and one for denials."""
    steps = found["timeline"]["steps"]
    if not steps:
        return
    _heading("over time")
    per_block = -(-len(steps) // (2 * _MAX_STEPS))
    series = [("requests", "requests", ""), ("denied", "denied", "red")]
    if found["against"] is not None:
        series.append(("denied (against)", "denied_against", "blue"))
    out = console()
    for words, name, style in series:
        values = [sum(step[name] for step in steps[at : at + per_block]) for at in range(0, len(steps), per_block)]
        peak = max(values)
        blocks = "".join(_BLOCKS[-(-8 * value // peak) if peak else 0] for value in values)
        out.print(Styled.assemble((f"{words:{_LABEL}}", "dim"), (blocks, style), (f"  max {peak:,}", "dim")))
    width = span(found["timeline"]["seconds"] * per_block)
    out.print(Styled(f"{'':{_LABEL}}{moment(steps[0]['at'])} …, each {width}", "dim"))


def _demand(demand: Sequence[Mapping[str, Any]]) -> None:
    if not demand:
        return
    _heading("demand per window, and limits that would deny at most this share of it")
    shares = [f"{100 * each['denied_share']:g} %" for each in demand[0]["enough"]]
    percentiles = list(demand[0]["percentiles"])
    headings = ("rule", "limit", *percentiles, "most", *shares)
    rows = [
        (
            each["rule"],
            each["limit"],
            *(f"{amount:,}" for amount in each["percentiles"].values()),
            f"{each['most']:,}",
            *(f"{enough['amount']:,}" for enough in each["enough"]),
        )
        for each in demand
    ]
    print_rows(headings, rows, numbers=headings[2:])


def _heading(words: str) -> None:
    console().print(Styled(f"\n{words}", "bold"))


def _subject(subject: Mapping[str, Any]) -> str:
    return subject["name"] if subject["kind"] == "user" else f"{subject['kind']} {subject['name']}".rstrip()


def _request(each: Mapping[str, Any]) -> str:
    return " ".join(word for word in (each["method"], each["path"]) if word)


def _decision(each: Mapping[str, Any]) -> Styled:
    words = Styled(each["decision"], _STYLES[each["decision"]])
    return words.append(f" {each['rule']}", "dim") if each["rule"] else words


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
