"""Refuses what a builder cannot see step by step: the shape of the whole graph."""

from __future__ import annotations

from penstock.errors import DefinitionError
from penstock.pipelines.definition import Definition, Kind, Node
from penstock.pipelines.wiring import Wiring, wire

DEEPEST = 28
CLOSING = frozenset({Kind.COLLECT, Kind.MERGE, Kind.CLOSE, Kind.END})


def check(definition: Definition) -> Wiring:
    """The wiring of a definition that can be run; raises DefinitionError for any other."""
    try:
        if not any(node.kind.is_step for node in definition.nodes):
            raise DefinitionError("it has no steps. Call at least one task in it")
        for node in definition.nodes:
            _check_after(definition, node)
            _check_ends(definition, node)
            if node.depth > DEEPEST:
                raise DefinitionError(f"step {node.key!r} is inside more than {DEEPEST} expands")
        wiring = wire(definition)
        check_widths(wiring, definition.max_fanout)
        _check_steps(wiring)
        return wiring
    except DefinitionError as error:
        raise DefinitionError(f"pipeline {definition.name!r}: {error}") from None


def check_widths(wiring: Wiring, limit: int | None) -> None:
    """Refuse divides that are wider than an expand may be; also at the beginning."""
    if limit is None:
        return
    for key, place in wiring.places.items():
        if place.node.kind is Kind.SWITCH:
            continue
        behind = {edge.target for edge in place.out if wiring.places[edge.target].node.kind not in CLOSING}
        if len(behind) > max(limit, 1):
            raise DefinitionError(f"step {key!r} is divided into {len(behind)}; max_fanout is {limit}")
    if len(wiring.roots) > max(limit, 1):
        raise DefinitionError(f"it begins with {len(wiring.roots)} steps at once; max_fanout is {limit}")


def _check_steps(wiring: Wiring) -> None:
    most, least = wiring.definition.max_steps, wiring.inside(None)
    if most is not None and least > most:
        raise DefinitionError(f"it has {least} steps outside of expands alone; max_steps is {most}")


def _check_ends(definition: Definition, node: Node) -> None:
    """A pipeline may be a child of itself, but not of every run."""
    always = node.arm is None and not node.scope
    if node.kind is Kind.CHILD and node.target == definition.name and always:
        raise DefinitionError(
            f"step {node.key!r} starts the same pipeline again, in every run: that never ends. "
            "Call it in an arm of a switch"
        )


def _check_after(definition: Definition, node: Node) -> None:
    for source in node.after:
        if source == node.key:
            raise DefinitionError(f"step {node.key!r} depends on itself. Remove it from its own after=")
        scope = definition.by_key[source].scope
        if node.scope[: len(scope)] != scope:
            raise DefinitionError(
                f"step {node.key!r} comes after {source!r}, which is inside an expand that {node.key!r} is "
                "outside of. Come after all its elements: after=[step.collect()]"
            )
