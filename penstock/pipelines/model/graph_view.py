"""A run as a graph: its nodes, what each comes after, and how many of its steps stand where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.pipelines.model.definition import RESERVED, NodeKind
from penstock.pipelines.model.wiring import Wiring
from penstock.values.escape import in_line
from penstock.values.status import JobStatus, RunStatus


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node. `after` are the steps whose end it waits for, `inside` the expands it is in, outermost first."""

    key: str
    kind: NodeKind
    target: str
    after: tuple[str, ...]
    inside: tuple[str, ...]
    counts: Mapping[JobStatus, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Graph:
    """All nodes in an order in which every one comes after those it waits for."""

    pipeline: str
    status: RunStatus
    nodes: tuple[GraphNode, ...]

    def __str__(self) -> str:
        lines = [f"{in_line(self.pipeline)}: {self.status}"]
        for node in self.nodes:
            if node.kind.is_step:
                counts = ", ".join([f"{count} {status}" for status, count in sorted(node.counts.items())])
                after = f" after {', '.join(node.after)}" if node.after else ""
                lines.append(f"{'  ' * (len(node.inside) + 1)}{node.key}{after}: {counts or 'not reached'}")
        return "\n".join(lines)


def graph_of(wiring: Wiring, status: RunStatus, counted: Iterable[Sequence[object]]) -> Graph:
    """The graph of a run, from how many steps of a node have which status."""
    counts: dict[str, dict[JobStatus, int]] = {}
    for node, state, count in counted:
        counts.setdefault(str(node), {})[JobStatus.stored(str(state))] = int(str(count))
    before: dict[str, list[str]] = {}
    for place in wiring.places.values():
        for edge in place.out:
            before.setdefault(edge.target, []).append(edge.source)
    nodes = []
    for key in wiring.order:
        node = wiring.places[key].node
        after = tuple(dict.fromkeys(_steps_behind(before, key)))
        nodes.append(GraphNode(key, node.kind, node.target, after, node.scope, counts.get(key, {})))
    return Graph(wiring.definition.name, status, tuple(nodes))


def _steps_behind(before: Mapping[str, Sequence[str]], key: str) -> list[str]:
    """The steps a node comes after; nodes that only steer are seen through."""
    found: list[str] = []
    for source in before.get(key, ()):
        found += _steps_behind(before, source) if source.startswith(RESERVED) else [source]
    return found
