"""Finding the rules that match a request without looking at those that cannot.

Rules are sorted once into a tree of dictionaries: by path, then attributes, tier, method
and address. Finding is a few look-ups, however many rules there are; each step also
follows the branch of the rules that have no condition there. A leaf holds only rules
whose every condition has been met, and of those only what can still win its layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.core import endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.core.address import Address
    from headgate.core.rule import Match

_REMEMBERED_PATHS: Final = 4_096
_LONGEST_REMEMBERED: Final = 256


class Candidate(NamedTuple):
    """A rule together with one of its endpoint patterns."""

    rank: int
    """The order in which candidates win; unique, lower first."""
    slot: int
    """Which of the exclusive places (a layer, a layer's shadow, the gate) the rule competes for."""
    entry: int
    """Which compiled rule this is."""
    pattern: str
    match: Match


Leaf: TypeAlias = tuple[Candidate, ...]


class Facts(NamedTuple):
    """What the tree looks at, besides the path."""

    attributes: Mapping[str, str]
    tier: str | None
    method: str
    address: Address | None


class Node:
    """One step of the tree: an optional condition in each dimension, and a leaf where none is left."""

    __slots__ = ("any", "attributes", "leaf", "methods", "networks", "tiers")

    def __init__(self) -> None:
        """Start empty."""
        self.leaf: Leaf = ()
        self.attributes: dict[tuple[str, str], Node] = {}
        self.tiers: dict[str, Node] = {}
        self.methods: dict[str, Node] = {}
        self.networks: dict[tuple[int, int], dict[int, Node]] = {}
        """(IP version, bits to drop) -> network number -> node"""
        self.any: Node | None = None

    def collect(self, facts: Facts, found: list[Leaf]) -> None:  # noqa: C901 (one paragraph per dimension)
        """Append the leaves of all branches whose conditions hold."""
        if self.leaf:
            found.append(self.leaf)
        if self.any is not None:
            self.any.collect(facts, found)
        if self.attributes:
            for pair in facts.attributes.items():
                node = self.attributes.get(pair)
                if node is not None:
                    node.collect(facts, found)
        if self.tiers and facts.tier is not None:
            node = self.tiers.get(facts.tier)
            if node is not None:
                node.collect(facts, found)
        if self.methods:
            node = self.methods.get(facts.method)
            if node is not None:
                node.collect(facts, found)
        if self.networks and facts.address is not None:
            version, number, _ = facts.address
            for (of_version, dropped), networks in self.networks.items():
                node = networks.get(number >> dropped) if of_version == version else None
                if node is not None:
                    node.collect(facts, found)


class _Open(NamedTuple):
    """A candidate on its way down the tree, with the conditions it has still to meet."""

    candidate: Candidate
    attributes: tuple[tuple[str, str], ...]


def build(candidates: Iterable[Candidate]) -> Node:
    """Sort candidates of one path pattern into a tree."""
    return _by_attribute([_Open(candidate, candidate.match.attributes) for candidate in candidates])


def _by_attribute(opens: list[_Open]) -> Node:
    def pair(opened: _Open) -> list[tuple[str, str]]:
        return [opened.attributes[0]] if opened.attributes else []

    def below(opens: list[_Open]) -> Node:
        return _by_attribute([_Open(opened.candidate, opened.attributes[1:]) for opened in opens])

    return _branch(opens, pair, _by_tier, "attributes", below)


def _by_tier(opens: list[_Open]) -> Node:
    return _branch(opens, lambda opened: opened.candidate.match.tiers, _by_method, "tiers")


def _by_method(opens: list[_Open]) -> Node:
    def methods(opened: _Open) -> list[str]:
        listed = list(opened.candidate.match.methods)
        # A HEAD request asks for the same work as GET; leaving it out would be a way around the rule.
        if "GET" in listed and "HEAD" not in listed:
            listed.append("HEAD")
        return listed

    return _branch(opens, methods, _by_network, "methods")


def _by_network(opens: list[_Open]) -> Node:
    node = Node()
    node.leaf = _leaf(opened.candidate for opened in opens if not opened.candidate.match.ip_ranges)
    groups: dict[tuple[int, int], dict[int, list[Candidate]]] = {}
    for candidate, _ in opens:
        for network in candidate.match.ip_ranges:
            dropped = network.max_prefixlen - network.prefixlen
            number = int(network.network_address) >> dropped
            groups.setdefault((network.version, dropped), {}).setdefault(number, []).append(candidate)
    for place, networks in groups.items():
        node.networks[place] = {}
        for number, candidates in networks.items():
            node.networks[place][number] = below = Node()
            below.leaf = _leaf(candidates)
    return node


def _branch(
    opens: list[_Open],
    values: Callable[[_Open], Sequence[object]],
    following: Callable[[list[_Open]], Node],
    dimension: str,
    below: Callable[[list[_Open]], Node] | None = None,
) -> Node:
    """A node that splits on one dimension, or the following one where nothing has a condition here."""
    groups: dict[object, list[_Open]] = {}
    rest = []
    for opened in opens:
        wanted = values(opened)
        if not wanted:
            rest.append(opened)
        for value in wanted:
            groups.setdefault(value, []).append(opened)
    if not groups:
        return following(rest)
    node = Node()
    node.any = following(rest) if rest else None
    children = {value: (below or following)(group) for value, group in groups.items()}
    setattr(node, dimension, children)
    return node


def _leaf(candidates: Iterable[Candidate]) -> Leaf:
    """Of candidates that all match, the best of each slot."""
    best: dict[int, Candidate] = {}
    for candidate in candidates:
        rival = best.get(candidate.slot)
        if rival is None or candidate.rank < rival.rank:
            best[candidate.slot] = candidate
    return tuple(sorted(best.values()))


class _Segment:
    """One level of the path trie."""

    __slots__ = ("below", "here", "parameter", "prefix")

    def __init__(self) -> None:
        self.below: dict[str, _Segment] = {}
        self.parameter: _Segment | None = None
        self.here: Node | None = None
        """Rules whose template ends here."""
        self.prefix: Node | None = None
        """Rules whose ``/*`` follows here."""


class PathIndex:
    """The first dimension: from a normalised path to the trees of all patterns that match it."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        """Sort the candidates by pattern."""
        self._exact: dict[str, Node] = {}
        self._root = _Segment()
        self._remembered: dict[str, tuple[Node, ...]] = {}
        # By shape: templates that differ only in the names of their parameters end at one place.
        groups: dict[tuple[bool, tuple[str | None, ...]], list[Candidate]] = {}
        for candidate in candidates:
            shape = (candidate.pattern.endswith("/*"), tuple(endpoint.segments(candidate.pattern)))
            groups.setdefault(shape, []).append(candidate)
        for (is_prefix, parts), group in groups.items():
            if not is_prefix and None not in parts:
                self._exact[group[0].pattern] = build(group)
            else:
                self._add(parts, build(group), is_prefix=is_prefix)

    def _add(self, parts: tuple[str | None, ...], tree: Node, *, is_prefix: bool) -> None:
        segment = self._root
        for part in parts:
            if part is None:
                segment.parameter = segment.parameter or _Segment()
                segment = segment.parameter
            else:
                segment = segment.below.setdefault(part, _Segment())
        if is_prefix:
            segment.prefix = tree
        else:
            segment.here = tree

    def trees(self, path: str) -> tuple[Node, ...]:
        """The trees of all patterns that match a normalised path."""
        trees = self._remembered.get(path)
        if trees is None:
            found: list[Node] = []
            exact = self._exact.get(path)
            if exact is not None:
                found.append(exact)
            _walk(self._root, [part for part in path.split("/") if part], 0, found)
            trees = tuple(found)
            if len(path) <= _LONGEST_REMEMBERED:
                if len(self._remembered) >= _REMEMBERED_PATHS:
                    self._remembered.clear()
                self._remembered[path] = trees
        return trees


def _walk(segment: _Segment, parts: list[str], depth: int, found: list[Node]) -> None:
    if segment.prefix is not None:
        found.append(segment.prefix)
    if depth == len(parts):
        if segment.here is not None:
            found.append(segment.here)
        return
    below = segment.below.get(parts[depth])
    if below is not None:
        _walk(below, parts, depth + 1, found)
    if segment.parameter is not None:
        _walk(segment.parameter, parts, depth + 1, found)
