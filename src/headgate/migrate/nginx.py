"""nginx's `limit_req` as rules.

nginx admits at a rate, and lets `burst` more requests wait for their turn, or pass at once with `nodelay`:

    rate=10r/s burst=20            leaky_bucket  10/second burst 21, held for their delay
    rate=10r/s burst=20 nodelay    token_bucket  10/second burst 21
    rate=10r/s                     token_bucket  10/second burst 1
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.controlplane.imported_rules import ImportedRules, layer
from headgate.errors import InvalidFields, Problem, short_repr
from headgate.migrate.moved import Moved, Note, notes_in_order, rules_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK: Final = re.compile(r"#[^\n]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[{};]|[^\s{};]+|\n")
_RATE: Final = re.compile(r"(?P<amount>[0-9]{1,9})r/(?P<unit>[sm])")
_PER: Final = {"$binary_remote_addr": "ip", "$remote_addr": "ip", "$request_uri": "endpoint", "$uri": "endpoint"}
_UNITS: Final = {"s": "second", "m": "minute"}
_DEFAULT_STATUS: Final = 503


class _Directive(NamedTuple):
    words: tuple[str, ...]
    line: int
    around: tuple[tuple[str, ...], ...]
    """The blocks that it is in, the outermost first."""


class _Zone(NamedTuple):
    per: str
    limit: str


def move_nginx(text: str) -> Moved:
    """Rules for the `limit_req` of a configuration."""
    found = list(_directives(text))
    made, notes = ImportedRules(), list[Note]()
    zones = {
        name: zone for each in found if each.words[0] == "limit_req_zone" for name, zone in _zone(each, made, notes)
    }
    for each in found:
        if each.words[0] == "limit_req":
            _add(each, zones, found, made, notes)
        elif each.words[0] in {"limit_conn", "limit_rate", "limit_req_dry_run"}:
            notes.append(Note(each.line, f"{each.words[0]} is not carried over"))
    notes.append(Note(0, "ask headgate for every request: docs/how-to/put-behind-a-gateway.md has the lines for nginx"))
    rules, more = made.finish()
    if not rules["rules"]:
        raise InvalidFields([Problem((), "there is no limit_req in this configuration")])
    return Moved("nginx", rules_text(rules), notes_in_order([*notes, *(Note(0, each) for each in more)]))


def _directives(text: str) -> Iterator[_Directive]:
    around: list[tuple[str, ...]] = []
    words: list[str] = []
    line, began = 1, 1
    for mark in _MARK.findall(text):
        if mark == "\n":
            line += 1
        elif mark in {"{", ";", "}"}:
            if mark == "{":
                around.append(tuple(words))
            elif mark == ";" and words:
                yield _Directive(tuple(words), began, tuple(around))
            elif mark == "}" and around:
                around.pop()
            words = []
        elif not mark.startswith("#"):
            began = began if words else line
            words.append(mark.strip("\"'"))
            line += mark.count("\n")


def _zone(each: _Directive, made: ImportedRules, notes: list[Note]) -> Iterator[tuple[str, _Zone]]:
    options = dict(word.partition("=")[::2] for word in each.words[1:] if "=" in word)
    rate = _RATE.fullmatch(options.get("rate", ""))
    name = options.get("zone", "").partition(":")[0]
    if rate is None or not name or "=" in each.words[1]:
        found = short_repr(" ".join(each.words))
        message = f"line {each.line}: limit_req_zone needs a key, zone=NAME:SIZE and rate=10r/s, not {found}"
        made.problems.append(Problem((), message))
        return
    key = each.words[1]
    per = _PER.get(key) or (f"attribute:{key[6:]}" if key.startswith("$http_") else "global")
    if per.startswith("attribute:"):
        notes.append(Note(each.line, f"send the header behind {key} as the attribute '{per[10:]}' of a request"))
    elif per == "global" and key.startswith("$"):
        notes.append(Note(each.line, f"{key} is not known here: the zone {name} counts all requests together"))
    yield name, _Zone(per, f"{rate['amount']}/{_UNITS[rate['unit']]}")


def _add(
    each: _Directive, zones: dict[str, _Zone], found: list[_Directive], made: ImportedRules, notes: list[Note]
) -> None:
    options = dict(word.partition("=")[::2] for word in each.words[1:])
    zone = zones.get(options.get("zone", ""))
    if zone is None:
        made.problems.append(Problem((), f"line {each.line}: limit_req names a zone that no limit_req_zone has"))
        return
    endpoints = _endpoints(each, notes)
    if endpoints is None:
        return
    burst = options.get("burst", "0")
    waits = burst != "0" and "nodelay" not in options
    if "delay" in options:
        notes.append(Note(each.line, "delay=N lets the first N pass at once; here all that exceed the rate are held"))
    rule: dict[str, Any] = {
        "layer": layer(f"{options['zone']}:{'+'.join(endpoints) or 'everything'}"),
        "per": [zone.per],
        "limits": f"{zone.limit} burst {int(burst) + 1 if burst.isdigit() else 1}",
        "algorithm": "leaky_bucket" if waits else "token_bucket",
        "response": {"status": _status(each, found)},
    }
    if waits:
        rule["action"] = "throttle"
    if endpoints:
        rule["match"] = {"endpoints": endpoints}
    made.add((), f"{options['zone']}{'-'.join(endpoints)}", rule)


def _endpoints(each: _Directive, notes: list[Note]) -> list[str] | None:
    """The paths of a location; none for everything, None if they cannot be written."""
    location = next((words[1:] for words in reversed(each.around) if words and words[0] == "location"), ("/",))
    if location[0] == "=":
        return [location[1]]
    if location[0] in {"~", "~*"} or location[0].startswith("@"):
        notes.append(Note(each.line, f"a location {' '.join(location)} has no equivalent; write its endpoints by hand"))
        return None
    path = location[-1].rstrip("/")
    if path and not location[-1].endswith("/"):
        notes.append(
            Note(each.line, f"the location {path} also holds for {path}x in nginx; here for it and what is below")
        )
    return [path, f"{path}/*"] if path else []


def _status(each: _Directive, found: list[_Directive]) -> int:
    """`limit_req_status` of the nearest block around it."""
    near = [one for one in found if one.words[0] == "limit_req_status" and one.around == each.around[: len(one.around)]]
    nearest = max(near, key=lambda one: len(one.around), default=None)
    return _DEFAULT_STATUS if nearest is None else int(nearest.words[1])
