"""The wiring of a definition: which nodes a node tells of its end, and what each counts before it is decided.

Three rules make counting enough:
- Inside a scope every edge joins two nodes at the same path, and nothing is ever told to all elements at once: for
  what it uses from outside a node waits at a door (see `doors`). In definitions from before there were doors, the
  expand waits for it.
- A node that belongs to an arm hears from its switch, unless a node of the same arm, whose value it reads,
  has heard already.
- A node that can be decided before all its inputs have ended (`first`, or a step that is pruned) does not
  vouch for them: they are tied to the end of their scope as well. So what ends a scope, or the run, is last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from penstock.pipelines.model.definition import CLOSE, END, Definition, Node, NodeKind
from penstock.pipelines.model.doors import doors_of, parted, prunes
from penstock.pipelines.model.edges import Arm, Edge, EdgeKind, edges_of, in_order, prune_causes

Scope = tuple[str, ...]


class Rule(StrEnum):
    """How a node is decided from what its edges carried."""

    ALL = "all"
    FIRST = "first"
    MERGE = "merge"
    COLLECT = "collect"
    CLOSE = "close"


_RULES = {
    NodeKind.FIRST: Rule.FIRST,
    NodeKind.MERGE: Rule.MERGE,
    NodeKind.COLLECT: Rule.COLLECT,
    NodeKind.CLOSE: Rule.CLOSE,
    NodeKind.END: Rule.CLOSE,
}


@dataclass(frozen=True, slots=True)
class NodeWiring:
    """A node with its edges. `count` is how many tokens decide it: in a collect or close, per element.

    Of an expand, `entry` is the first step inside and `closers` are the nodes that wait for all its elements.
    """

    node: Node
    rule: Rule
    count: int
    out: tuple[Edge, ...]
    entry: str = ""
    closers: tuple[str, ...] = ()
    is_expanded: bool = False
    """Its value is what an expand is over."""
    doors: tuple[str, ...] = ()
    """Where it waits for what it uses from outside of its scope, in this order."""

    @property
    def is_door(self) -> bool:
        return self.node.kind is NodeKind.DOOR

    @property
    def per_element(self) -> bool:
        return self.node.kind is NodeKind.COLLECT or self.node.kind is NodeKind.CLOSE


@dataclass(frozen=True, slots=True)
class Wiring:
    """A definition made ready for planning. `order` has every node behind those it waits for.

    `ranks` numbers all nodes in that order, ends of scopes included: what fires has a lower rank than what it
    leads to.
    """

    definition: Definition
    places: Mapping[str, NodeWiring]
    roots: tuple[str, ...]
    order: tuple[str, ...]
    ranks: Mapping[str, int]

    def inside(self, expand: str | None) -> int:
        """How many steps every element of an expand has, without those in expands further inside; None: the run."""
        scope = () if expand is None else (*self.places[expand].node.scope, expand)
        return sum(node.scope == scope and node.kind.is_step for node in self.definition.nodes)


def wire(definition: Definition) -> Wiring:
    """The wiring of a definition; raises DefinitionError for a cycle."""
    together = edges_of(definition)
    order = in_order(definition, together)
    edges, outer = parted(definition) if definition.doors else (together, [])
    causes = prune_causes(definition, [*edges, *prunes(definition, outer)], order)
    ends, tied = _ends(definition, edges, causes)
    doors, before = doors_of(definition, outer)
    nodes = {**definition.by_key, **{node.key: node for node in [*doors, *ends]}}
    into: dict[str, list[Edge]] = {key: [] for key in nodes}
    out: dict[str, list[Edge]] = {key: [] for key in nodes}
    for edge in [*edges, *before, *tied]:
        into[edge.target].append(edge)
        out[edge.source].append(edge)
    closers = _closers(nodes)
    roots = tuple([key for key in order if not into[key]])
    behind: dict[str, list[str]] = {}
    for door in doors:
        behind.setdefault(door.target, []).append(door.key)
        out[door.key].append(Edge(door.key, door.target, EdgeKind.ORDER))
    places = {
        key: _place(node, nodes, into[key], out[key], closers, behind.get(key, ()))
        for key, node in nodes.items()
    }
    # Doors come right before their nodes; ends of scopes after everything, the innermost first, the run's last.
    inside = [one for key in order for one in (*behind.get(key, ()), key)]
    last = [*inside, *[node.key for node in ends]]
    return Wiring(definition, places, roots, order, {key: rank for rank, key in enumerate(last)})


@lru_cache(maxsize=512)
def wiring_of(text: str) -> Wiring:
    """The wiring of a stored definition, made once per process."""
    return wire(Definition.from_text(text))


def _closers(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """By expand, the nodes that wait for all its elements."""
    found: dict[str, list[str]] = {}
    for key, node in nodes.items():
        if (expand := _closed_by(node, nodes)) is not None:
            found.setdefault(expand, []).append(key)
    return found


def _place(
    node: Node,
    nodes: Mapping[str, Node],
    into: Sequence[Edge],
    out: Sequence[Edge],
    closers: Mapping[str, Sequence[str]],
    doors: Sequence[str],
) -> NodeWiring:
    rule = _RULES.get(node.kind, Rule.ALL)
    if node.kind is not NodeKind.EXPAND:
        is_expanded = any(_is_expand(nodes, edge.target) for edge in out)
        return NodeWiring(node, rule, len(into), tuple(out), is_expanded=is_expanded, doors=tuple(doors))
    (entry,) = [edge.target for edge in out if edge.kind is EdgeKind.ELEMENT]
    closing = tuple(sorted(closers.get(node.key, ())))
    return NodeWiring(node, rule, len(into), (), entry, closing, doors=tuple(doors))


def _is_expand(nodes: Mapping[str, Node], key: str) -> bool:
    node = nodes[key]
    return (nodes[node.target] if node.kind is NodeKind.DOOR else node).kind is NodeKind.EXPAND


def _closed_by(node: Node, nodes: Mapping[str, Node]) -> str | None:
    match node.kind:
        case NodeKind.COLLECT:
            return nodes[node.reads[0]].scope[-1]
        case NodeKind.CLOSE:
            return node.target
    return None


def _ends(
    definition: Definition, edges: Sequence[Edge], causes: Mapping[str, frozenset[Arm]]
) -> tuple[list[Node], list[Edge]]:
    """The end of the run, the close of each expand that needs one, and the edges to them."""
    surely_ended = _surely_ended(definition, edges, causes)
    untied: dict[Scope, list[str]] = {}
    for node in definition.nodes:
        if node.key not in surely_ended and node.kind is not NodeKind.EXPAND:
            untied.setdefault(node.scope, []).append(node.key)
    ends: list[Node] = []
    tied: list[Edge] = []
    for depth in range(max(map(len, untied), default=0), 0, -1):
        for scope in sorted([scope for scope in untied if len(scope) == depth]):
            # The close is one more end in the scope around it.
            close = Node(
                CLOSE + scope[-1].partition(".")[2], NodeKind.CLOSE, target=scope[-1], scope=scope[:-1]
            )
            ends.append(close)
            tied.extend([Edge(key, close.key, EdgeKind.DONE) for key in untied[scope]])
            untied.setdefault(close.scope, []).append(close.key)
    tied.extend([Edge(key, END, EdgeKind.DONE) for key in untied.get((), [])])
    return [*ends, Node(END, NodeKind.END)], tied


def _surely_ended(
    definition: Definition, edges: Sequence[Edge], causes: Mapping[str, frozenset[Arm]]
) -> set[str]:
    """Nodes that have certainly ended when some node behind them has been decided."""
    into: dict[str, list[Edge]] = {}
    for edge in edges:
        into.setdefault(edge.target, []).append(edge)
    surely_ended: set[str] = set()
    for key, incoming in into.items():
        kind = definition.by_key[key].kind
        hasty = [kind is NodeKind.FIRST or _may_prune(edge, causes) for edge in incoming]
        most = sum(hasty)
        for edge, itself in zip(incoming, hasty, strict=True):
            # Whether one of the others may decide it before this one has ended.
            if kind in (NodeKind.MERGE, NodeKind.COLLECT) or most == itself:
                surely_ended.add(edge.source)
    return surely_ended


def _may_prune(edge: Edge, causes: Mapping[str, frozenset[Arm]]) -> bool:
    return edge.kind is EdgeKind.GATE or (edge.kind is EdgeKind.VALUE and bool(causes[edge.source]))
