"""Which requests a rule concerns, and what it counts per."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.core import endpoint
from headgate.core.address import parse_network
from headgate.core.parsing.fields import NAME, unusable
from headgate.core.path import PLAIN, Spelling
from headgate.core.rule import ATTRIBUTE, PER_ORDER, Match
from headgate.errors import short_repr

if TYPE_CHECKING:
    from headgate.core.parsing.fields import Fields

_FIELDS: Final = ("endpoints", "methods", "tiers", "ip_ranges", "attributes", "case_sensitive", "strip_parameters")
METHOD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


def match(fields: Fields, usual: Spelling, *, stored: bool = False) -> Match:
    """What stands under `match`; an empty one matches everything. `usual` is the spelling of the whole rule set."""
    given = fields.below("match", _FIELDS)
    endpoints = given.each("endpoints", _stored_endpoint if stored else _endpoint)
    return Match(
        endpoints,
        given.each("methods", _method),
        given.each("tiers", str),
        given.each("ip_ranges", parse_network),
        _attributes(given),
        _spelling(given, endpoints, usual),
    )


def spelling(fields: Fields, usual: Spelling) -> Spelling:
    """How paths are compared: by this rule's fields for it, else by those of the rule set."""
    return Spelling(
        fields.truth("case_sensitive", default=usual.case_sensitive),
        fields.truth("strip_parameters", default=usual.strip_parameters),
    )


def _spelling(given: Fields, endpoints: tuple[str, ...], usual: Spelling) -> Spelling:
    if not given.has("endpoints"):
        for name in Spelling._fields:
            if given.has(name):
                given.problem("has no effect without endpoints; leave it out", name)
        return PLAIN
    read = spelling(given, usual)
    if read.strip_parameters:
        for pattern in endpoints:
            if ";" in pattern:
                sentence = f"{short_repr(pattern)} has a parameter, which strip_parameters removes from all paths"
                given.problem(sentence, "endpoints")
    return read


def _endpoint(pattern: str) -> str:
    return _canonical(pattern, endpoint.problem(pattern))


def _stored_endpoint(pattern: str) -> str:
    return _canonical(pattern, endpoint.problem(pattern, stored=True))


def _canonical(pattern: str, wrong: str | None) -> str:
    if wrong:
        raise ValueError(wrong)
    return endpoint.canonical(pattern)


def _method(text: str) -> str:
    if not METHOD.fullmatch(text):
        msg = f"{short_repr(text)} is not an HTTP method"
        raise ValueError(msg)
    return text.upper()


def _attributes(given: Fields) -> tuple[tuple[str, str], ...]:
    pairs = []
    for name, value in given.mapping("attributes").items():
        if not isinstance(name, str) or not name or unusable(name):
            given.problem("the name of an attribute is a text", "attributes", name)
        elif not isinstance(value, str) or unusable(value):
            given.problem(f"expected a text, not {short_repr(value)}; put it in quotes", "attributes", name)
        else:
            pairs.append((name, value))
    return tuple(sorted(pairs))


def per(fields: Fields) -> tuple[str, ...]:
    """What stands under `per`, in one order."""
    parts = fields.each("per", _part) or ("global",)
    if "global" in parts and len(parts) > 1:
        fields.problem("'global' counts all callers together, so it stands alone", "per")
    # Sorted, so that writing the parts in another order goes on with the same counters.
    order = {part: index for index, part in enumerate(PER_ORDER)}
    return tuple(sorted(parts, key=lambda part: (order.get(part, len(order)), part)))


def _part(text: str) -> str:
    if text in PER_ORDER or (text.startswith(ATTRIBUTE) and NAME.fullmatch(text.removeprefix(ATTRIBUTE))):
        return text
    msg = f"{short_repr(text)} is not something to count per; use {', '.join(PER_ORDER)} or attribute:NAME"
    raise ValueError(msg)
