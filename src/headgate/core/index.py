"""Finding the rules that match a request without looking at those that cannot.

Rules are sorted once into a tree of dictionaries: by path, then tier, method, attributes
and address. Finding is a few look-ups, however many rules there are; each step also
follows the branch of the rules that have no condition there. A leaf holds only rules
whose every condition has been met, and of those only what can still win its layer.

The order matters: path, tier and method have few values, so the caller can remember what
was found for them (`Node.settle`). Only attributes and addresses, where some rule has a
condition on them, are compared for every request (`Node.look`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headgate.core import endpoint
from headgate.core.path import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.core.address import Address
    from headgate.core.path import Reading, Spelling
    from headgate.core.rule import Match


class Candidate(NamedTuple):
    """A rule together with one of its endpoint patterns."""

    rank: int
    """The order in which candidates win; unique, lower first."""
    slot: int
    """Which exclusive slot (a layer, a layer's shadow, the gate) the rule competes for."""
    entry: int
    """Which compiled rule this is."""
    pattern: str
    match: Match


Leaf: TypeAlias = tuple[Candidate, ...]


class Node:
    """One step of the tree: an optional condition in one dimension, and a leaf where none is left."""

    __slots__ = ("any", "attributes", "leaf", "methods", "networks", "tiers")

    def __init__(self) -> None:
        """Start empty."""
        self.leaf: Leaf = ()
        self.tiers: dict[str, Node] = {}
        self.methods: dict[str, Node] = {}
        self.attributes: dict[tuple[str, str], Node] = {}
        self.networks: dict[int, list[tuple[int, dict[int, Leaf]]]] = {}
        """IP version -> for each length of prefix: bits to drop, and leaves by what is left"""
        self.any: Node | None = None

    def settle(self, tier: str | None, method: str, met: list[Leaf], asking: list[Node]) -> None:
        """Follow tier and method: append the leaves whose conditions are all met, and the nodes that ask for more."""
        if self.leaf:
            met.append(self.leaf)
        if self.attributes or self.networks:
            asking.append(self)
        branches = (self.any, self.tiers.get(tier) if tier is not None else None, self.methods.get(method))
        for node in branches:
            if node is not None:
                node.settle(tier, method, met, asking)

    def look(self, attributes: Mapping[str, str], address: Address | None, met: list[Leaf]) -> None:
        """Append the leaves that the request's attributes and address lead to."""
        if self.attributes:
            for pair in attributes.items():
                node = self.attributes.get(pair)
                if node is not None:
                    node.look_on(attributes, address, met)
        if self.networks and address is not None:
            number = address.number
            for dropped, leaves in self.networks.get(address.version, ()):
                leaf = leaves.get(number >> dropped)
                if leaf is not None:
                    met.append(leaf)

    def look_on(self, attributes: Mapping[str, str], address: Address | None, met: list[Leaf]) -> None:
        """As `look`, with what needs no further looking."""
        if self.leaf:
            met.append(self.leaf)
        if self.any is not None:
            self.any.look_on(attributes, address, met)
        self.look(attributes, address, met)


class _Open(NamedTuple):
    """A candidate on its way down the tree, with the conditions it has still to meet."""

    candidate: Candidate
    attributes: tuple[tuple[str, str], ...]


def build(candidates: Iterable[Candidate]) -> Node:
    """Sort candidates of one path pattern into a tree."""
    return _by_tier([_Open(candidate, candidate.match.attributes) for candidate in candidates])


def _by_tier(opens: list[_Open]) -> Node:
    return _branch(opens, lambda opened: opened.candidate.match.tiers, _by_method, "tiers")


def _by_method(opens: list[_Open]) -> Node:
    def methods(opened: _Open) -> list[str]:
        listed = list(opened.candidate.match.methods)
        # A HEAD request asks for the same work as GET; leaving it out would be a way around the rule.
        if "GET" in listed and "HEAD" not in listed:
            listed.append("HEAD")
        return listed

    return _branch(opens, methods, _by_attribute, "methods")


def _by_attribute(opens: list[_Open]) -> Node:
    def pair(opened: _Open) -> list[tuple[str, str]]:
        return [opened.attributes[0]] if opened.attributes else []

    def below(opens: list[_Open]) -> Node:
        return _by_attribute([_Open(opened.candidate, opened.attributes[1:]) for opened in opens])

    return _branch(opens, pair, _by_network, "attributes", below)


def _by_network(opens: list[_Open]) -> Node:
    node = Node()
    node.leaf = _leaf(opened.candidate for opened in opens if not opened.candidate.match.ip_ranges)
    groups: dict[tuple[int, int], dict[int, list[Candidate]]] = {}
    for candidate, _ in opens:
        for network in candidate.match.ip_ranges:
            dropped = network.max_prefixlen - network.prefixlen
            number = int(network.network_address) >> dropped
            groups.setdefault((network.version, dropped), {}).setdefault(number, []).append(candidate)
    for (version, dropped), networks in groups.items():
        leaves = {number: _leaf(candidates) for number, candidates in networks.items()}
        node.networks.setdefault(version, []).append((dropped, leaves))
    return node


def _branch(
    opens: list[_Open],
    values: Callable[[_Open], Sequence[object]],
    next_dimension: Callable[[list[_Open]], Node],
    dimension: str,
    below: Callable[[list[_Open]], Node] | None = None,
) -> Node:
    """A node that splits on one dimension, or that of the next one if no candidate has a condition here."""
    groups: dict[object, list[_Open]] = {}
    rest = []
    for opened in opens:
        wanted = values(opened)
        if not wanted:
            rest.append(opened)
        for value in wanted:
            groups.setdefault(value, []).append(opened)
    if not groups:
        return next_dimension(rest)
    node = Node()
    node.any = next_dimension(rest) if rest else None
    children = {value: (below or next_dimension)(group) for value, group in groups.items()}
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
    """The first dimension: from a path to the trees of all patterns that match it."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        """Sort the candidates by the spelling that their paths are compared in."""
        groups: dict[Spelling, list[Candidate]] = {PLAIN: []}
        for candidate in candidates:
            groups.setdefault(candidate.match.spelling, []).append(candidate)
        tries = [(spelling, _PathTrie(group, spelling)) for spelling, group in groups.items()]
        self._first = tries[0][1]
        """That of the plain spelling."""
        self._others = sorted(tries[1:], key=lambda other: other[0].strip_parameters)

    def trees(self, reading: Reading) -> tuple[Node, ...]:
        """The trees of all patterns that match a path, as one kind of server reads it."""
        path = reading.normal(strip_parameters=False)
        found = self._first.trees(path)
        is_stripped = ";" not in reading.path
        for spelling, trie in self._others:
            if spelling.strip_parameters and not is_stripped:
                path, is_stripped = reading.normal(strip_parameters=True), True
            found += trie.trees(path if spelling.case_sensitive else path.casefold())
        return tuple(found)


class _PathTrie:
    """The patterns that are compared in one spelling."""

    def __init__(self, candidates: Sequence[Candidate], spelling: Spelling) -> None:
        """Sort the candidates by pattern."""
        self._exact: dict[str, Node] = {}
        self._root = _Segment()
        self._depth = 0
        """How many segments the longest template or prefix has. What follows decides nothing."""
        # By shape: templates that differ only in the names of their parameters end at one node.
        groups: dict[tuple[bool, tuple[str | None, ...]], list[Candidate]] = {}
        for candidate in candidates:
            pattern = spelling.of_pattern(candidate.pattern)
            shape = (pattern.endswith("/*"), tuple(endpoint.segments(pattern)))
            groups.setdefault(shape, []).append(candidate)
        for (is_prefix, parts), group in groups.items():
            if not is_prefix and None not in parts:
                self._exact[spelling.of_pattern(group[0].pattern)] = build(group)
            else:
                self._add(parts, build(group), is_prefix=is_prefix)

    def _add(self, parts: tuple[str | None, ...], tree: Node, *, is_prefix: bool) -> None:
        self._depth = max(self._depth, len(parts))
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

    def trees(self, path: str) -> list[Node]:
        """The trees of all patterns that match a path in this spelling."""
        exact = self._exact.get(path)
        found = [] if exact is None else [exact]
        reached = [self._root]
        for part in path[1:].split("/", self._depth) if path != "/" else ():
            next_segments = []
            for segment in reached:
                if segment.prefix is not None:
                    found.append(segment.prefix)
                below = segment.below.get(part)
                if below is not None:
                    next_segments.append(below)
                if segment.parameter is not None and part:
                    next_segments.append(segment.parameter)
            reached = next_segments
            if not reached:
                break
        for segment in reached:
            found += [tree for tree in (segment.prefix, segment.here) if tree is not None]
        return found
