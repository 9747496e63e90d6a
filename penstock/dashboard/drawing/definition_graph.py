"""Turns a definition into a graph to draw: steps and switches as nodes, expands as scopes around their steps.

Nodes that only steer (expand, collect, merge, barrier) are seen through where that adds no edge; else they become a
small junction, so that a barrier between a hundred steps and a hundred others is two hundred edges, not ten thousand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.pipelines.model.definition import Definition, Node, NodeKind
from penstock.pipelines.model.edges import EdgeKind, own_edges
from penstock.values.plain import counted

JUNCTION = "junction"
SWITCH = "switch"
_ALWAYS = frozenset({NodeKind.TASK, NodeKind.WAIT, NodeKind.CHILD, NodeKind.SWITCH})
OTHERWISE = "otherwise"


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node of the picture. `kind`: `task`, `wait`, `child`, `switch` or `junction`."""

    key: str
    kind: str
    label: str
    detail: str
    inside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge of the picture; `label` names the arm of a switch, `order` is true if no value goes along it."""

    source: str
    target: str
    label: str = ""
    order: bool = False


@dataclass(frozen=True, slots=True)
class DefinitionGraph:
    """Nodes and edges to draw. `scopes` has the title of each expand, by its key."""

    name: str
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    scopes: Mapping[str, str]


def definition_graph(definition: Definition) -> DefinitionGraph:
    """The graph of a definition, with its nodes in the order of their keys."""
    into: dict[str, dict[str, DrawnEdge]] = {node.key: {} for node in definition.nodes}
    out: dict[str, dict[str, DrawnEdge]] = {node.key: {} for node in definition.nodes}
    for edge in own_edges(definition):
        arms = definition.by_key[edge.source].arms
        label = ""
        if edge.kind is EdgeKind.GATE and 0 <= edge.arm < len(arms):
            label = OTHERWISE if arms[edge.arm] is None else str(arms[edge.arm])
        _keep(into, out, DrawnEdge(edge.source, edge.target, label, edge.kind is EdgeKind.ORDER))
    kept: list[DrawnNode] = []
    for node in definition.nodes:
        if node.kind not in _ALWAYS and not _stays(node, len(into[node.key]), len(out[node.key])):
            _see_through(into, out, node.key)
        else:
            kept.append(_drawn(node))
    _drop_repeats(into, out, [node.key for node in kept if node.kind == SWITCH])
    titles = {node.key: _title(node) for node in definition.nodes if node.kind is NodeKind.EXPAND}
    edges = [edge for node in kept for edge in out[node.key].values()]
    return DefinitionGraph(definition.name, tuple(kept), tuple(edges), titles)


def _stays(node: Node, sources: int, targets: int) -> bool:
    return (node.kind is NodeKind.FIRST and targets > 0) or (sources > 1 and targets > 1)


def _drawn(node: Node) -> DrawnNode:
    if node.kind is NodeKind.SWITCH:
        return DrawnNode(node.key, SWITCH, "switch", counted(len(node.arms), "arm"), node.scope)
    if node.kind is NodeKind.FIRST:
        label = "first" if node.quorum == 1 else f"first {node.quorum}"
        return DrawnNode(node.key, JUNCTION, label, "goes on as soon as enough have ended", node.scope)
    if not node.kind.is_step:
        return DrawnNode(node.key, JUNCTION, node.kind.value, "", node.scope)
    return DrawnNode(node.key, node.kind.value, node.key, _detail(node), node.scope)


def _detail(node: Node) -> str:
    match node.kind:
        case NodeKind.WAIT:
            return f"signal {node.target}"
        case NodeKind.CHILD:
            return f"run of {node.target}"
    return node.target if node.target != node.key else ""


def _title(node: Node) -> str:
    name = node.key.partition(".")[2] or node.key
    return f"for each element: {name}"


def _keep(
    into: dict[str, dict[str, DrawnEdge]], out: dict[str, dict[str, DrawnEdge]], edge: DrawnEdge
) -> None:
    """Keep one edge for each pair of nodes: it carries a value if one of the edges does, and has the first label."""
    known = out[edge.source].get(edge.target)
    if known is not None:
        edge = DrawnEdge(edge.source, edge.target, known.label or edge.label, known.order and edge.order)
    into[edge.target][edge.source] = edge
    out[edge.source][edge.target] = edge


def _see_through(
    into: dict[str, dict[str, DrawnEdge]], out: dict[str, dict[str, DrawnEdge]], key: str
) -> None:
    for source, before in into.pop(key).items():
        del out[source][key]
        for target, after in out[key].items():
            _keep(
                into, out, DrawnEdge(source, target, before.label or after.label, before.order or after.order)
            )
    for target in out.pop(key):
        into[target].pop(key, None)


def _drop_repeats(
    into: dict[str, dict[str, DrawnEdge]], out: dict[str, dict[str, DrawnEdge]], switches: list[str]
) -> None:
    """Drop an edge from a value to an arm if the switch gets the same value: it is drawn through the switch only."""
    for switch in switches:
        for source in into[switch]:
            for target in out[switch]:
                out[source].pop(target, None)
                into[target].pop(source, None)
