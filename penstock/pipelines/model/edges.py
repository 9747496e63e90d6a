"""The edges that a definition asks for, their order, and which switches can prune a node. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import DefinitionError
from penstock.pipelines.model.definition import RESERVED, Definition, Node, NodeKind

Arm = tuple[str, int]


class EdgeKind(StrEnum):
    """The kind of message an edge carries: a value, order only, a switch's decision, an element, or just an end."""

    VALUE = "value"
    ORDER = "order"
    GATE = "gate"
    ELEMENT = "element"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge; `arm` is the number of the arm a gate stands before."""

    source: str
    target: str
    kind: EdgeKind
    arm: int = -1


def edges_of(definition: Definition) -> list[Edge]:
    """All edges between the definition's nodes; what is used from outside of an expand leads to the expand."""
    nodes = definition.by_key
    found: dict[tuple[str, str], Edge] = {}
    for edge in own_edges(definition):
        if is_from_outside(nodes, edge):
            # Known before the expand begins, for all its elements.
            edge = Edge(edge.source, nodes[edge.target].scope[nodes[edge.source].depth], edge.kind)
        _keep(found, edge)
    return list(found.values())


def own_edges(definition: Definition) -> list[Edge]:
    """All edges between the definition's nodes as they stand in it, one per pair."""
    found: dict[tuple[str, str], Edge] = {}
    for node in definition.nodes:
        for edge in _edges_to(definition.by_key, node):
            _keep(found, edge)
    return list(found.values())


def is_from_outside(nodes: Mapping[str, Node], edge: Edge) -> bool:
    """Whether it leads from outside of an expand to a node inside of it; an expand's element does not count."""
    outside = nodes[edge.source].depth < nodes[edge.target].depth
    return outside and edge.kind in (EdgeKind.VALUE, EdgeKind.ORDER)


def _keep(found: dict[tuple[str, str], Edge], edge: Edge) -> None:
    """One edge per pair; reading a value is more than coming after."""
    pair = (edge.source, edge.target)
    if pair not in found or found[pair].kind is EdgeKind.ORDER:
        found[pair] = edge


def in_order(definition: Definition, edges: Sequence[Edge]) -> tuple[str, ...]:
    """The keys, every node behind those it waits for; raises DefinitionError with the path of a cycle."""
    waiting = {node.key: 0 for node in definition.nodes}
    after: dict[str, list[str]] = {key: [] for key in waiting}
    for edge in edges:
        waiting[edge.target] += 1
        after[edge.source].append(edge.target)
    ready = deque([key for key, count in waiting.items() if count == 0])
    done: list[str] = []
    while ready:
        key = ready.popleft()
        done.append(key)
        for target in after[key]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    if len(done) < len(waiting):
        raise _cycle(definition, after, set(waiting) - set(done))
    return tuple(done)


def prune_causes(
    definition: Definition, edges: Sequence[Edge], order: Sequence[str]
) -> dict[str, frozenset[Arm]]:
    """For every node, the arms that can prune it if they are not chosen."""
    into: dict[str, list[Edge]] = {key: [] for key in order}
    for edge in edges:
        into[edge.target].append(edge)
    causes: dict[str, frozenset[Arm]] = {}
    for key in order:
        causes[key] = _causes(definition.by_key[key], into[key], causes, definition.by_key)
    return causes


def within(nodes: Mapping[str, Node], node: Node, outer: Arm | None) -> bool:
    """Whether the node belongs to the arm, or to one nested in it."""
    arm = node.arm
    while arm is not None and arm != outer:
        arm = nodes[arm[0]].arm
    return outer is not None and arm == outer


def _edges_to(nodes: Mapping[str, Node], node: Node) -> Iterator[Edge]:
    if node.kind is NodeKind.COLLECT:
        yield Edge(node.reads[0], node.key, EdgeKind.ELEMENT)
        return
    if node.is_entry:
        yield Edge(node.scope[-1], node.key, EdgeKind.ELEMENT)
    kinds = dict.fromkeys(node.after, EdgeKind.ORDER) | dict.fromkeys(node.reads, EdgeKind.VALUE)
    told = False
    for source, kind in kinds.items():
        if nodes[source].depth == node.depth:
            told = told or (kind is EdgeKind.VALUE and within(nodes, nodes[source], node.arm))
        yield Edge(source, node.key, kind)
    if node.arm is not None and nodes[node.arm[0]].scope == node.scope and not told:
        yield Edge(node.arm[0], node.key, EdgeKind.GATE, node.arm[1])


def _causes(
    node: Node, into: Sequence[Edge], known: Mapping[str, frozenset[Arm]], nodes: Mapping[str, Node]
) -> frozenset[Arm]:
    match node.kind:
        case NodeKind.COLLECT:
            return known[nodes[node.reads[0]].scope[-1]]
        case NodeKind.MERGE:
            arms = enumerate(node.reads)
            return frozenset().union(*[known[tail] - {(node.target, number)} for number, tail in arms])
        case NodeKind.FIRST:
            each = [known[source] for source in node.reads]
            needed = len(each) - node.quorum + 1
            return frozenset().union(*each) if len([one for one in each if one]) >= needed else frozenset()
    found: set[Arm] = set()
    for edge in into:
        if edge.kind is EdgeKind.GATE:
            found |= known[edge.source] | {(edge.source, edge.arm)}
        elif edge.kind is EdgeKind.VALUE:
            found |= known[edge.source]
    return frozenset(found)


def _cycle(definition: Definition, after: Mapping[str, Sequence[str]], stuck: set[str]) -> DefinitionError:
    path = _walk(after, stuck)
    shown = [key for key in path if not key.startswith(RESERVED)] or path
    if len(set(path)) == 1:
        return DefinitionError(
            f"step {path[0]!r} depends on itself. Remove it from its own after= or arguments"
        )
    expands = [key for key in path if definition.by_key[key].kind is NodeKind.EXPAND]
    hint = "Remove one of these dependencies"
    if expands:
        hint = (
            "A step inside an expand uses a value that is made from all elements of the same expand: "
            "open a second one with .map() for it"
        )
    return DefinitionError(f"the steps form a cycle: {' → '.join([*shown, shown[0]])}. {hint}")


def _walk(after: Mapping[str, Sequence[str]], stuck: set[str]) -> list[str]:
    # Going backwards from a stuck node never leaves the stuck ones, so a node must come twice.
    before = {key: sorted(source for source in stuck if key in after[source]) for key in stuck}
    seen: list[str] = []
    key = min(stuck)
    while key not in seen:
        seen.append(key)
        key = before[key][0]
    return list(reversed(seen[seen.index(key) :]))
