"""Who tells whom that it has ended, and what each node counts before it is decided.

Three rules make counting enough:
- A value from an enclosing scope gates the entry of the expand, so inside a scope every edge joins two nodes
  at the same path, and nothing is ever told to all elements at once.
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

from penstock.pipelines.definition import CLOSE, END, Definition, Kind, Node
from penstock.pipelines.edges import Arm, Edge, EdgeKind, edges_of, in_order, prune_causes

Scope = tuple[str, ...]


class Rule(StrEnum):
    """How a node is decided from what its edges carried."""

    ALL = "all"
    FIRST = "first"
    MERGE = "merge"
    COLLECT = "collect"
    CLOSE = "close"


_RULES = {
    Kind.FIRST: Rule.FIRST,
    Kind.MERGE: Rule.MERGE,
    Kind.COLLECT: Rule.COLLECT,
    Kind.CLOSE: Rule.CLOSE,
    Kind.END: Rule.CLOSE,
}


@dataclass(frozen=True, slots=True)
class Place:
    """A node with its edges. `count` is how many tokens decide it: in a collect or close, per element.

    Of an expand, `entry` is the first step inside and `closers` are the nodes that wait for all its elements.
    """

    node: Node
    rule: Rule
    count: int
    out: tuple[Edge, ...]
    entry: str = ""
    closers: tuple[str, ...] = ()
    spreads: bool = False
    """Its value is what an expand is over."""

    @property
    def per_element(self) -> bool:
        return self.node.kind is Kind.COLLECT or self.node.kind is Kind.CLOSE


@dataclass(frozen=True, slots=True)
class Wiring:
    """A definition made ready for planning. `order` has every node behind those it waits for.

    `ranks` numbers all nodes in that order, ends of scopes included: what fires has a lower rank than what it
    leads to.
    """

    definition: Definition
    places: Mapping[str, Place]
    roots: tuple[str, ...]
    order: tuple[str, ...]
    ranks: Mapping[str, int]

    def inside(self, expand: str | None) -> int:
        """How many steps every element of an expand has, without those in expands further inside; None: the run."""
        scope = () if expand is None else (*self.places[expand].node.scope, expand)
        return sum(node.scope == scope and node.kind.is_step for node in self.definition.nodes)


def wire(definition: Definition) -> Wiring:
    """The wiring of a definition; raises DefinitionError for a cycle."""
    edges = edges_of(definition)
    order = in_order(definition, edges)
    ends, tied = _ends(definition, edges, prune_causes(definition, edges, order))
    nodes = {**definition.by_key, **{node.key: node for node in ends}}
    into: dict[str, list[Edge]] = {key: [] for key in nodes}
    out: dict[str, list[Edge]] = {key: [] for key in nodes}
    for edge in [*edges, *tied]:
        into[edge.target].append(edge)
        out[edge.source].append(edge)
    places = {key: _place(node, nodes, into[key], out[key]) for key, node in nodes.items()}
    roots = tuple([key for key in order if not into[key]])
    # Ends of scopes come after everything, the innermost first, and the end of the run is last.
    last = [*order, *[node.key for node in ends]]
    return Wiring(definition, places, roots, order, {key: rank for rank, key in enumerate(last)})


@lru_cache(maxsize=512)
def wiring_of(text: str) -> Wiring:
    """The wiring of a stored definition, made once per process."""
    return wire(Definition.from_text(text))


def _place(node: Node, nodes: Mapping[str, Node], into: Sequence[Edge], out: Sequence[Edge]) -> Place:
    rule = _RULES.get(node.kind, Rule.ALL)
    if node.kind is not Kind.EXPAND:
        spreads = any(nodes[edge.target].kind is Kind.EXPAND for edge in out)
        return Place(node, rule, len(into), tuple(out), spreads=spreads)
    (entry,) = [edge.target for edge in out if edge.kind is EdgeKind.ELEMENT]
    closers = sorted([key for key, other in nodes.items() if _closed_by(other, nodes) == node.key])
    return Place(node, rule, len(into), (), entry, tuple(closers))


def _closed_by(node: Node, nodes: Mapping[str, Node]) -> str | None:
    match node.kind:
        case Kind.COLLECT:
            return nodes[node.reads[0]].scope[-1]
        case Kind.CLOSE:
            return node.target
    return None


def _ends(
    definition: Definition, edges: Sequence[Edge], causes: Mapping[str, frozenset[Arm]]
) -> tuple[list[Node], list[Edge]]:
    """The end of the run, the close of each expand that needs one, and the edges to them."""
    vouched = _vouched(definition, edges, causes)
    loose: dict[Scope, list[str]] = {}
    for node in definition.nodes:
        if node.key not in vouched and node.kind is not Kind.EXPAND:
            loose.setdefault(node.scope, []).append(node.key)
    ends: list[Node] = []
    tied: list[Edge] = []
    for depth in range(max(map(len, loose), default=0), 0, -1):
        for scope in sorted([scope for scope in loose if len(scope) == depth]):
            # The close is one more end in the scope around it.
            close = Node(CLOSE + scope[-1].partition(".")[2], Kind.CLOSE, target=scope[-1], scope=scope[:-1])
            ends.append(close)
            tied.extend([Edge(key, close.key, EdgeKind.DONE) for key in loose[scope]])
            loose.setdefault(close.scope, []).append(close.key)
    tied.extend([Edge(key, END, EdgeKind.DONE) for key in loose.get((), [])])
    return [*ends, Node(END, Kind.END)], tied


def _vouched(definition: Definition, edges: Sequence[Edge], causes: Mapping[str, frozenset[Arm]]) -> set[str]:
    """Nodes that have certainly ended when some node behind them has been decided."""
    into: dict[str, list[Edge]] = {}
    for edge in edges:
        into.setdefault(edge.target, []).append(edge)
    vouched: set[str] = set()
    for key, incoming in into.items():
        kind = definition.by_key[key].kind
        for edge in incoming:
            others = [other for other in incoming if other is not edge]
            hasty = bool(others) if kind is Kind.FIRST else _may_prune(others, causes)
            if kind in (Kind.MERGE, Kind.COLLECT) or not hasty:
                vouched.add(edge.source)
    return vouched


def _may_prune(edges: Sequence[Edge], causes: Mapping[str, frozenset[Arm]]) -> bool:
    return any(
        edge.kind is EdgeKind.GATE or (edge.kind is EdgeKind.VALUE and causes[edge.source]) for edge in edges
    )
