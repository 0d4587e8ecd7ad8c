"""Rules from a configuration of envoyproxy/ratelimit.

Every limit becomes a rule that matches the domain and the values on its way as attributes, and
counts per attribute where the way names a key without a value. Limits with the same keys are one
layer, so that, as there, the one that names a value comes before the one for all values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.controlplane.imported_rules import ImportedRules, layer
from headgate.core.parsing.fields import NAME, Fields, unusable
from headgate.core.rule import ATTRIBUTE
from headgate.errors import short_repr

_DESCRIPTOR: Final = (
    *("key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric", "value_to_metric"),
    *("share_threshold", "quota_mode"),
)
_LIMIT: Final = ("unit", "requests_per_unit", "unlimited", "name", "replaces")
_UNITS: Final = {
    **{unit: unit for unit in ("second", "minute", "hour", "day")},
    "week": "7 days",
    "month": "30 days",
    "year": "365 days",  # as long as they are there
}
_MAX_REQUESTS: Final = 2**32 - 1
_DEEPEST: Final = 50
_DOMAIN: Final = "domain"
_LOST: Final = {
    "detailed_metric": "detailed_metric only concerns metrics there and is left out",
    "value_to_metric": "value_to_metric only concerns metrics there and is left out",
    "quota_mode": "quota_mode is left out; to watch a limit without enforcing it use 'action: log'",
}


@dataclass(frozen=True, slots=True)
class _Way:
    """The keys and values from the domain down to a descriptor."""

    domain: str
    words: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    per: tuple[str, ...] = ()


def from_envoy_ratelimit(data: object) -> tuple[dict[str, Any], list[str]]:
    """A rule set from a configuration of envoyproxy/ratelimit, and notes about what could not be carried over.

    Raises `InvalidFields` where it is not such a configuration.
    """
    made = ImportedRules()
    root = Fields(data, (), made.problems, ("domain", "descriptors"))
    domain = root.text("domain", "")
    if root.is_mapping and not root.has("domain"):
        root.problem("a configuration needs a domain", "domain")
    _descriptors(root, _Way(domain, (domain,)), made)
    if not made.problems:
        message = f"the domain is matched as the attribute 'domain' ({short_repr(domain)}); callers have to send it"
        made.note((), message)
    return made.finish()


def _descriptors(fields: Fields, way: _Way, made: ImportedRules) -> None:
    """All that stand in one list."""
    listed = fields.data.get("descriptors")
    if listed is None:
        return
    if not isinstance(listed, list | tuple):
        fields.problem(f"expected a list of descriptors, not {short_repr(listed)}", "descriptors")
        return
    if len(way.keys) >= _DEEPEST:
        fields.problem(f"descriptors are nested deeper than {_DEEPEST} levels", "descriptors")
        return
    seen: set[tuple[object, object]] = set()
    for index, each in enumerate(listed):
        descriptor = Fields(each, (*fields.path, "descriptors", index), made.problems, _DESCRIPTOR)
        if not descriptor.is_mapping:
            continue
        key, value = descriptor.text("key", ""), _value(descriptor)
        if not descriptor.has("key"):
            descriptor.problem("a descriptor needs a key", "key")
        if (key, value) in seen:
            descriptor.problem(f"the key {short_repr(key)} with the value {short_repr(value)} is there twice", "key")
        seen.add((key, value))
        further = _further(descriptor, way, key, value, made)
        if further is not None:
            _descriptor(descriptor, further, made)


def _value(descriptor: Fields) -> str:
    """The value; a number is what it looks like, as it is for Go."""
    value = descriptor.data.get("value")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "" if value == "" else descriptor.text("value", "")


def _further(descriptor: Fields, way: _Way, key: str, value: str, made: ImportedRules) -> _Way | None:
    """The way to a descriptor; None, with a note, if rules cannot go there."""
    words = (*way.words, f"{key}_{value}" if value else key)
    longer = replace(way, words=words, keys=(*way.keys, key))
    shared = descriptor.truth("share_threshold", default=False)
    if value and not value.endswith("*"):
        return replace(longer, values=(*way.values, (key, value)))
    if len(value) > 1:
        lost = "attributes are matched whole; this descriptor and what is below it are left out"
        made.note(descriptor.path, f"the value {short_repr(value)} is a prefix, and {lost}")
        return None
    if value and shared:
        return longer  # any value, all of them on one counter
    if not NAME.fullmatch(key):
        lost = "this descriptor and what is below it are left out"
        made.note(descriptor.path, f"nothing can be counted per attribute {short_repr(key)}, which is no name; {lost}")
        return None
    sentence = f"requests without the attribute {short_repr(key)} match too, and are counted by address"
    made.note(descriptor.path, sentence)
    return replace(longer, per=(*way.per, f"{ATTRIBUTE}{key}"))


def _descriptor(descriptor: Fields, way: _Way, made: ImportedRules) -> None:
    shadow = descriptor.truth("shadow_mode", default=False)
    for name, message in _LOST.items():
        if descriptor.truth(name, default=False):
            made.note(descriptor.path, message)
    if descriptor.has("rate_limit"):
        limit = descriptor.below("rate_limit", _LIMIT)
        rule = _limited(limit, way, made)
        _replaces(limit, made)
        if shadow and rule.get("action") != "block":
            rule["action"] = "log"
        elif shadow:
            rule["enabled"] = False
            made.note(descriptor.path, "a limit of 0 in shadow mode becomes a rule that is switched off")
        made.add(descriptor.path, ".".join(way.words), _where(way) | rule)
    elif not descriptor.has("descriptors"):
        made.add(descriptor.path, ".".join(way.words), _where(way) | {"limits": "unlimited"})
    _descriptors(descriptor, way, made)


def _where(way: _Way) -> dict[str, Any]:
    """What a rule matches and counts per."""
    # Where a descriptor has the key itself, its value says more than the domain does.
    attributes = {_DOMAIN: way.domain} | dict(way.values)
    return {
        "layer": layer(f"{way.domain}:{'.'.join(way.keys)}"),
        "match": {"attributes": attributes},
        "per": list(dict.fromkeys(way.per)) or ["global"],
    }


def _limited(limit: Fields, way: _Way, made: ImportedRules) -> dict[str, Any]:
    """The limit of a rule and how it is counted."""
    unit = limit.data.get("unit")
    if limit.truth("unlimited", default=False):
        if unit is not None:
            limit.problem("an unlimited descriptor has no unit", "unit")
        return {"limits": "unlimited"}
    period = _UNITS.get(unit.lower()) if isinstance(unit, str) else None
    if period is None:
        limit.problem(f"{short_repr(unit)} is not one of {', '.join(_UNITS)}", "unit")
    requests = limit.whole("requests_per_unit", 0, 0, _MAX_REQUESTS)
    if requests:
        # The windows there begin with the unit, and so do those of fixed_window.
        return {"limits": f"{requests}/{period}", "algorithm": "fixed_window"}
    blocked: dict[str, Any] = {"action": "block", "response": {"status": 429}}
    if not way.values:
        message = "a limit of 0 for all values would block the whole domain; its rule is switched off"
        made.note(limit.path, message)
        blocked["enabled"] = False
    return blocked


def _replaces(limit: Fields, made: ImportedRules) -> None:
    replaced = limit.data.get("replaces")
    if replaced is None:
        return
    if not isinstance(replaced, list | tuple) or not all(_is_name(each) for each in replaced):
        limit.problem(f"expected a list of names, as in [{{name: specific}}], not {short_repr(replaced)}", "replaces")
        return
    names = ", ".join(short_repr(each["name"]) for each in replaced)
    message = (
        f"it replaces {names} there; here both apply, unless you give them one layer and this one a lower priority"
    )
    made.note((*limit.path, "replaces"), message)


def _is_name(each: Any) -> bool:  # noqa: ANN401 (anything from a file)
    name = each.get("name") if isinstance(each, dict) else None
    return isinstance(name, str) and bool(name) and unusable(name) is None
