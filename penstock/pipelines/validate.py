"""Refuses what a builder cannot see step by step: the shape of the whole graph."""

from __future__ import annotations

from penstock.errors import DefinitionError
from penstock.pipelines.definition import Definition, Node
from penstock.pipelines.wiring import Wiring, wire

DEEPEST = 28


def check(definition: Definition) -> Wiring:
    """The wiring of a definition that can be run; raises DefinitionError for any other."""
    try:
        if not any(node.kind.is_step for node in definition.nodes):
            raise DefinitionError("it has no steps. Call at least one task in it")
        for node in definition.nodes:
            _check_after(definition, node)
            if node.depth > DEEPEST:
                raise DefinitionError(f"step {node.key!r} is inside more than {DEEPEST} expands")
        return wire(definition)
    except DefinitionError as error:
        raise DefinitionError(f"pipeline {definition.name!r}: {error}") from None


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
