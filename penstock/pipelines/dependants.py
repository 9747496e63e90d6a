"""What depends on a step: all that is made from its value, comes after it or is chosen by it, to any depth. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.pipelines.definition import Kind, Node
from penstock.pipelines.wiring import Wiring


def dependants(wiring: Wiring, key: str) -> Mapping[str, int]:
    """The nodes that depend on this one, each with how much of the path they have in common.

    As long as that is the whole path of the step, an element depends on the step of the same element alone. Behind a
    collapse it is less: then it depends on all of those whose paths begin so.
    """
    nodes = wiring.definition.by_key
    found = {key: nodes[key].depth} if key in nodes else {}
    for name in wiring.order:
        shared = [found[source] for source in _sources(nodes[name]) if source in found]
        if shared and name != key:
            found[name] = min(*shared, nodes[name].depth)
    found.pop(key, None)
    return found


def _sources(node: Node) -> set[str]:
    """What this node depends on by its own words.

    That a value from outside holds up a whole expand does not make every step inside depend on it.
    """
    sources = {*node.reads, *node.after, *node.scope}
    if node.arm is not None:
        sources.add(node.arm[0])
    if node.kind is Kind.MERGE:
        sources.add(node.target)
    return sources
