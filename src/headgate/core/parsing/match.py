"""Which requests a rule concerns, and what it counts per."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headgate.core import endpoint
from headgate.core.address import Network, parse_network
from headgate.core.parsing.fields import Fields, shown
from headgate.core.rule import ATTRIBUTE, PER_ORDER, Match

_FIELDS: Final = ("endpoints", "methods", "tiers", "ip_ranges", "attributes")
METHOD: Final = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def match(fields: Fields) -> Match:
    """What stands under `match`; an empty one matches everything."""
    given = Fields(fields.data.get("match") or {}, (*fields.path, "match"), fields.problems, _FIELDS)
    endpoints = []
    for index, pattern in enumerate(given.texts("endpoints")):
        if wrong := endpoint.problem(pattern):
            given.problem(wrong, "endpoints", index)
        else:
            endpoints.append(endpoint.canonical(pattern))
    methods = []
    for index, text in enumerate(given.texts("methods")):
        method = text.upper()
        if METHOD.fullmatch(method):
            methods.append(method)
        else:
            given.problem(f"{shown(text)} is not an HTTP method", "methods", index)
    networks: list[Network] = []
    for index, text in enumerate(given.texts("ip_ranges")):
        try:
            networks.append(parse_network(text))
        except ValueError as error:
            given.problem(f"{shown(text)} is not a network: {error}", "ip_ranges", index)
    return Match(
        tuple(dict.fromkeys(endpoints)),
        tuple(dict.fromkeys(methods)),
        tuple(dict.fromkeys(given.texts("tiers"))),
        tuple(dict.fromkeys(networks)),
        _attributes(given),
    )


def _attributes(given: Fields) -> tuple[tuple[str, str], ...]:
    data = given.data.get("attributes") or {}
    if not isinstance(data, Mapping):
        given.problem(f"expected a mapping of names to texts, not {shown(data)}", "attributes")
        return ()
    pairs = []
    for name, value in data.items():
        if isinstance(name, str) and isinstance(value, str):
            pairs.append((name, value))
        else:
            given.problem(f"expected a text, not {shown(value)}; put it in quotes", "attributes", str(name))
    return tuple(sorted(pairs))


def per(fields: Fields) -> tuple[str, ...]:
    """What stands under `per`, in one order."""
    parts = fields.texts("per") or ["global"]
    for index, part in enumerate(parts):
        name = part.removeprefix(ATTRIBUTE)
        if part not in PER_ORDER and (name == part or not NAME.fullmatch(name)):
            known = ", ".join(PER_ORDER)
            fields.problem(f"{shown(part)} is not something to count per; use {known} or attribute:NAME", "per", index)
    if "global" in parts and len(parts) > 1:
        fields.problem("'global' counts everybody together, so it stands alone", "per")
    # Sorted, so that writing the parts in another order goes on with the same counters.
    order = {part: index for index, part in enumerate(PER_ORDER)}
    return tuple(sorted(dict.fromkeys(parts), key=lambda part: (order.get(part, len(order)), part)))
