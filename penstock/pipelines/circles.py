"""Refuses pipelines that start each other in every run: each run would begin another, and none would ever end.

One that starts itself is refused where it is defined (see `validate`). The others are not known there yet, so a circle
is looked for when a run is to be triggered. A step in an arm or an expand may come to nothing, and is no part of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.errors import DefinitionError
from penstock.pipelines.definition import Definition, Kind


class Defined(Protocol):
    """A pipeline of the app."""

    @property
    def definition(self) -> Definition: ...


Find = Callable[[str], Defined | None]


def refuse_circles(definition: Definition, find: Find) -> None:
    """Raise `DefinitionError` if a run of this would never end, whatever it is given."""
    over: set[str] = set()
    way: list[str] = [definition.name]
    ahead = [_begun_by(definition)]
    while ahead:
        name = next(ahead[-1], None)
        if name is None:
            ahead.pop()
            over.add(way.pop())
        elif name in way:
            circle = " → ".join([*way[way.index(name) :], name])
            raise DefinitionError(
                f"pipeline {definition.name!r}: {circle} start each other again in every run: that never ends. "
                "Call one of them in an arm of a switch"
            )
        elif name not in over and (child := find(name)) is not None:
            way.append(name)
            ahead.append(_begun_by(child.definition))


def _begun_by(definition: Definition) -> Iterator[str]:
    """The pipelines that every run of this one starts."""
    for node in definition.nodes:
        if node.kind is Kind.CHILD and node.arm is None and not node.scope:
            yield node.target
