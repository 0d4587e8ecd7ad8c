"""Rules from a configuration of envoyproxy/ratelimit, that decide as it does.

There, a descriptor of a request is looked up entry by entry: at each level the value, else a value with a star, else
the key alone. What was chosen is never taken back, and only a limit at exactly the depth of the descriptor applies.

Here, every limit becomes a rule that matches the domain, the keys of the descriptor in their order (the attribute
`descriptor_keys`, which Envoy's rate-limit service sets) and the values on the way to it, and counts per attribute
where the way names a key without a value. Rules for the same keys are one layer, ranked as the lookup goes; where the
lookup ends without a limit although a wider way leads to one, a rule that limits nothing stands in that way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.imported_rules import ImportedRules, layer
from headgate.core.parsing.fields import NAME, Fields, unusable
from headgate.core.rule import ATTRIBUTE, DESCRIPTOR_KEYS
from headgate.errors import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.core.parsing.fields import Path

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
_REFUSED: Final = (
    "a request that is refused uses nothing up here; there it uses up the limits of its other descriptors, and its "
    "own if it costs more than 1"
)
_MAX_REQUESTS: Final = 2**32 - 1
_MAX_DEPTH: Final = 50
_DOMAIN: Final = "domain"
_LEFT_OUT: Final = (
    "this descriptor and what is below it are left out, and its requests get what is for all values of the key, if "
    "anything is"
)
_LOST: Final = {
    "detailed_metric": "detailed_metric only concerns metrics there and is left out",
    "value_to_metric": "value_to_metric only concerns metrics there and is left out",
    "quota_mode": "quota_mode is left out; to watch a limit without enforcing it use 'action: log'",
}


_EXACT, _ANY, _KEY = 0, 1, 2
"""In the order in which the lookup prefers them: a value, any value (``*``), the key alone."""
_NONE: Final = 3
_FIRST_PRIORITY: Final = 100
_UNLIMITED: Final = {"limits": "unlimited"}


@dataclass(slots=True)
class _Node:
    """A descriptor of the configuration."""

    source: Path
    key: str
    value: str
    kind: int
    is_shared: bool
    rule: dict[str, Any] | None = None
    """Its limit as a part of a rule; None if it has none."""
    below: list[_Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Way:
    """A way down to a limit, or to where the lookup ends without one."""

    nodes: tuple[_Node, ...]
    rule: dict[str, Any]
    is_end: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """The earlier a way is found, the smaller."""
        return (*(node.kind for node in self.nodes), *((_NONE,) if self.is_end else ()))

    @property
    def values(self) -> dict[int, str]:
        """The values that it names, by level."""
        return {level: node.value for level, node in enumerate(self.nodes) if node.kind == _EXACT}

    def words(self, domain: str) -> str:
        """What the rule is called after."""
        names = (node.key if node.kind != _EXACT else f"{node.key}_{node.value}" for node in self.nodes)
        return ".".join([domain, *names, *(["unlimited"] if self.is_end else [])])


def from_envoy_ratelimit(data: object) -> tuple[dict[str, Any], list[str]]:
    """A rule set from a configuration of envoyproxy/ratelimit, and notes about what could not be carried over.

    Raises `InvalidFields` where it is not such a configuration.
    """
    made = ImportedRules()
    root = Fields(data, (), made.problems, ("domain", "descriptors"))
    domain = root.text("domain", "")
    if root.is_mapping and not root.has("domain"):
        root.problem("a configuration needs a domain", "domain")
    nodes = _nodes(root, (), made)
    if not made.problems:
        for keys in dict.fromkeys(_limited_keys(nodes, ())):
            _add_layer(domain, keys, [*_ways(nodes, keys, (), is_wider=False)], made)
        message = (
            f"rules match the attributes 'domain' ({short_repr(domain)}) and '{DESCRIPTOR_KEYS}' (the keys of the "
            "descriptor, with commas); Envoy's rate-limit service sets both, other callers have to send them"
        )
        made.note((), message)
        made.note((), _REFUSED)
    return made.finish()


def _nodes(fields: Fields, keys: tuple[str, ...], made: ImportedRules) -> list[_Node]:
    """All descriptors that stand in one list, without those that rules cannot say."""
    listed = fields.data.get("descriptors")
    if listed is None:
        return []
    if not isinstance(listed, list | tuple):
        fields.problem(f"expected a list of descriptors, not {short_repr(listed)}", "descriptors")
        return []
    if len(keys) >= _MAX_DEPTH:
        fields.problem(f"descriptors are nested deeper than {_MAX_DEPTH} levels", "descriptors")
        return []
    seen: set[str] = set()
    nodes: list[_Node] = []
    for index, each in enumerate(listed):
        descriptor = Fields(each, (*fields.path, "descriptors", index), made.problems, _DESCRIPTOR)
        if not descriptor.is_mapping:
            continue
        key, value = descriptor.text("key", ""), _value(descriptor)
        if not descriptor.has("key"):
            descriptor.problem("a descriptor needs a key", "key")
        joined = f"{key}_{value}" if value else key  # by which it is looked up there
        if joined in seen:
            descriptor.problem(f"the key {short_repr(key)} with the value {short_repr(value)} appears twice", "key")
        seen.add(joined)
        node = _node(descriptor, key, value, made)
        node.below = _nodes(descriptor, (*keys, key), made)
        if wrong := _cannot_say(node, keys):
            made.note(descriptor.path, f"{wrong}; {_LEFT_OUT}")
        else:
            nodes.append(node)
    return nodes


def _node(descriptor: Fields, key: str, value: str, made: ImportedRules) -> _Node:
    """A descriptor without those below it."""
    kind = _KEY if not value else _ANY if value == "*" else _EXACT
    is_shared = descriptor.truth("share_threshold", default=False)
    shadow = descriptor.truth("shadow_mode", default=False)
    for name, message in _LOST.items():
        if descriptor.truth(name, default=False):
            made.note(descriptor.path, message)
    node = _Node(descriptor.path, key, value, kind, is_shared and kind == _ANY)
    if descriptor.has("rate_limit"):
        limit = descriptor.below("rate_limit", _LIMIT)
        node.rule = _limited(limit)
        _replaces(limit, made)
        if shadow and "action" in node.rule:
            node.rule["enabled"] = False
            made.note(descriptor.path, "a limit of 0 in shadow mode becomes a rule that is switched off")
        elif shadow and node.rule is not _UNLIMITED:
            node.rule["action"] = "log"
    elif not descriptor.has("descriptors"):
        node.rule = _UNLIMITED
    return node


def _cannot_say(node: _Node, keys: tuple[str, ...]) -> str | None:
    """Why no rule can be made of a descriptor, or None."""
    key = short_repr(node.key)
    if node.kind == _EXACT and node.value.endswith("*"):
        return f"the value {short_repr(node.value)} is a prefix, and attributes are matched whole"
    if node.key in keys:
        return f"the key {key} appears twice on the path to it, and a request has one value of an attribute"
    if node.key in {_DOMAIN, DESCRIPTOR_KEYS}:
        return f"the key {key} is the attribute that rules find their descriptors by"
    if "," in node.key:
        return f"the key {key} has a comma, which stands between keys"
    if node.kind != _EXACT and not node.is_shared and not NAME.fullmatch(node.key):
        return f"nothing can be counted per attribute {key}, which is no name"
    return None


def _limited_keys(nodes: Sequence[_Node], keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The keys on the way to each limit."""
    for node in nodes:
        if node.rule is not None:
            yield (*keys, node.key)
        yield from _limited_keys(node.below, (*keys, node.key))


def _ways(nodes: Sequence[_Node], keys: tuple[str, ...], way: tuple[_Node, ...], *, is_wider: bool) -> Iterator[_Way]:
    """All ways by these keys; `is_wider` if the lookup, had it chosen otherwise above, would find a limit."""
    level = len(way)
    here = [node for node in nodes if node.key == keys[level]]
    leading = {node.kind for node in here if node.kind != _EXACT and _leads(node, keys, level)}
    for node in here:
        has_wider = is_wider or any(kind > node.kind for kind in leading)
        further = (*way, node)
        if level + 1 < len(keys):
            yield from _ways(node.below, keys, further, is_wider=has_wider)
            is_end = not any(each.kind != _EXACT and each.key == keys[level + 1] for each in node.below)
        else:
            if node.rule is not None:
                yield _Way(further, node.rule)
            # A rule that only watches, or is switched off, leaves its layer to the next one.
            is_end = node.rule is None or node.rule.get("action") == "log" or not node.rule.get("enabled", True)
        if has_wider and is_end:
            yield _Way(further, _UNLIMITED, is_end=True)


def _leads(node: _Node, keys: tuple[str, ...], level: int) -> bool:
    """Whether a limit can be found by these keys from here."""
    if level + 1 == len(keys):
        return node.rule is not None
    return any(_leads(each, keys, level + 1) for each in node.below if each.key == keys[level + 1])


def _add_layer(domain: str, keys: tuple[str, ...], ways: Sequence[_Way], made: ImportedRules) -> None:
    ranks = sorted({way.ranks for way in ways})
    # Rules with more conditions come first by themselves; only where that is another order priorities are needed.
    named = [sum(kind == _EXACT for kind in each) for each in ranks]
    is_by_itself = all(more > fewer for more, fewer in pairwise(named))
    priorities = {} if is_by_itself else {each: _FIRST_PRIORITY + number for number, each in enumerate(ranks)}
    for way in ways:
        rule = dict(way.rule)
        source = way.nodes[-1].source
        if rule.get("action") == "block" and rule.get("enabled", True) and _is_narrowed(way, ways):
            # Rules that block belong to no layer and are asked first.
            rule["enabled"] = False
            message = "a limit of 0 for all values but some cannot be said; its rule is switched off, and nothing else"
            made.note(source, f"{message} limits these values")
        attributes = {_DOMAIN: domain, DESCRIPTOR_KEYS: ",".join(keys)}
        attributes |= {keys[level]: value for level, value in way.values.items()}
        per = [f"{ATTRIBUTE}{node.key}" for node in way.nodes if node.kind != _EXACT and not node.is_shared]
        where: dict[str, Any] = {
            "layer": layer(f"{domain}:{'.'.join(keys)}"),
            "match": {"attributes": attributes},
            "per": (per if rule is not _UNLIMITED and not way.is_end else []) or ["global"],
        }
        if priorities:
            where["priority"] = priorities[way.ranks]
        made.add(source, way.words(domain), where | rule)


def _is_narrowed(way: _Way, ways: Sequence[_Way]) -> bool:
    """Whether some requests that a way matches go another way, which is found first."""
    ranks, values = way.ranks, way.values
    return any(
        other.ranks < ranks and all(values.get(level, value) == value for level, value in other.values.items())
        for other in ways
    )


def _value(descriptor: Fields) -> str:
    """The value; a number is what it looks like, as it is for Go."""
    value = descriptor.data.get("value")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "" if value == "" else descriptor.text("value", "")


def _limited(limit: Fields) -> dict[str, Any]:
    """The limit of a rule and how it is counted."""
    unit = limit.data.get("unit")
    if limit.truth("unlimited", default=False):
        if unit is not None:
            limit.problem("an unlimited descriptor has no unit", "unit")
        return _UNLIMITED
    period = _UNITS.get(unit.lower()) if isinstance(unit, str) else None
    if period is None:
        limit.problem(f"{short_repr(unit)} is not one of {', '.join(_UNITS)}", "unit")
    requests = limit.whole("requests_per_unit", 0, 0, _MAX_REQUESTS)
    if requests:
        # The windows there begin with the unit, and so do those of fixed_window.
        return {"limits": f"{requests}/{period}", "algorithm": "fixed_window"}
    return {"action": "block", "response": {"status": 429}}


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
