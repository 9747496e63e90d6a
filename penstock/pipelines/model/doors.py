"""Doors: where a step inside an expand waits for what it uses from outside. Pure.

An expand begins as soon as its list is there. A node inside that uses something from outside is decided like any
other from what is in its own scope; then it comes to its doors, one for each depth from which it uses something. A
door has one row for all elements of its scope: it counts the ends of what lies outside, and opens once. An element
that finds it open goes on; one that does not leaves a row of its own behind, and goes on when the door opens. So
nothing is counted per element, and where all is there already nothing is written per element either.

No door is needed for what has certainly gone well where the node is decided: what the list was made from, or what a
step before it uses as well. The doors of an expand's first step stand before all of its elements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from penstock.pipelines.model.definition import DOOR, Definition, Node, NodeKind
from penstock.pipelines.model.edges import Edge, EdgeKind, is_from_outside, own_edges

_UNSURE = frozenset({NodeKind.FIRST, NodeKind.MERGE})
_CARRIES = frozenset({EdgeKind.VALUE, EdgeKind.GATE, EdgeKind.ELEMENT})


def needs_doors(definition: Definition) -> bool:
    """True if a step inside an expand uses a value from outside that needs a door."""
    return any(node.scope for node in definition.nodes) and bool(parted(definition)[1])


def parted(definition: Definition) -> tuple[list[Edge], list[Edge]]:
    """The edges within scopes, and those that need a door, from outside to the node behind it."""
    nodes = definition.by_key
    inner: list[Edge] = []
    outer: list[Edge] = []
    for edge in own_edges(definition):
        (outer if is_from_outside(nodes, edge) else inner).append(edge)
    reached = {edge.target for edge in inner}
    for edge in list(outer):
        expand = _expand_of(nodes, edge)
        if expand is not None and expand.depth and expand.key not in reached:
            # Nothing else says to which element around it this expand belongs.
            outer.remove(edge)
            inner.append(Edge(edge.source, expand.key, edge.kind))
    into: dict[str, list[Edge]] = {}
    for edge in [*inner, *outer]:
        into.setdefault(edge.target, []).append(edge)
    return inner, [edge for edge in outer if not _is_certain(nodes, into, edge)]


def prunes(definition: Definition, outer: Sequence[Edge]) -> list[Edge]:
    """Edges by which a pruned token passes a door: to the node behind it or, for a first step, to the whole expand."""
    nodes = definition.by_key
    return [
        Edge(edge.source, node.scope[-1] if node.is_entry else node.key, edge.kind)
        for edge in outer
        for node in (nodes[edge.target],)
    ]


def doors_of(definition: Definition, outer: Sequence[Edge]) -> tuple[list[Node], list[Edge]]:
    """The doors, the outermost of a node first, and the edges to them."""
    nodes = definition.by_key
    doors: dict[str, Node] = {}
    edges: list[Edge] = []
    for edge in sorted(outer, key=lambda edge: (edge.target, nodes[edge.source].depth)):
        node, depth = nodes[edge.target], nodes[edge.source].depth
        key = f"{DOOR}{depth}.{node.key}"
        args = node.args if node.kind is NodeKind.PASS else ()
        doors.setdefault(key, Node(key, NodeKind.DOOR, target=node.key, args=args, scope=node.scope[:depth]))
        edges.append(Edge(edge.source, key, edge.kind))
    return list(doors.values()), edges


def _expand_of(nodes: Mapping[str, Node], edge: Edge) -> Node | None:
    """The expand before whose first step this edge ends, if it comes from right outside of it."""
    node = nodes[edge.target]
    expand = nodes[node.scope[-1]] if node.is_entry else None
    return expand if expand is not None and expand.scope == nodes[edge.source].scope else None


def _is_certain(nodes: Mapping[str, Node], into: Mapping[str, Sequence[Edge]], outer: Edge) -> bool:
    """True if the node is only decided after the source has succeeded, without waiting for it."""
    left = deque([edge for edge in into[outer.target] if edge is not outer and edge.kind in _CARRIES])
    seen: set[str] = set()
    while left:
        key = left.popleft().source
        if key == outer.source:
            return True
        if key in seen or nodes[key].kind in _UNSURE:
            continue
        seen.add(key)
        if nodes[key].kind is NodeKind.COLLECT:
            # An expand proves nothing about its elements: there may be none.
            left.append(Edge(nodes[nodes[key].reads[0]].scope[-1], key, EdgeKind.ELEMENT))
        else:
            left.extend([edge for edge in into.get(key, ()) if edge.kind in _CARRIES])
    return False
