"""Finds waits that a decided `first` no longer needs and that nothing else uses. Pure.

Only a `wait_for` is ended so. A step that runs goes on: its work may have effects.
"""

from __future__ import annotations

from penstock.pipelines.model.definition import NodeKind
from penstock.pipelines.model.edges import EdgeKind
from penstock.pipelines.model.expressions import outputs_in
from penstock.pipelines.model.wiring import Wiring


def only_first(wiring: Wiring, key: str) -> str | None:
    """The `first` that alone uses this wait; None: the node is no wait, or something else uses it too.

    A node in an arm or an expand that uses a wait from outside of it counts as something else.
    """
    place = wiring.places[key]
    if place.node.kind is not NodeKind.WAIT or key in outputs_in(wiring.definition.result):
        return None
    users = {edge.target for edge in place.out if edge.kind is not EdgeKind.DONE}
    if len(users) != 1:
        return None
    (user,) = users
    return user if wiring.places[user].node.kind is NodeKind.FIRST else None


def losers(wiring: Wiring, first: str) -> tuple[str, ...]:
    """The waits that lose when this `first` is decided."""
    reads = dict.fromkeys(wiring.places[first].node.reads)
    return tuple([key for key in reads if only_first(wiring, key) == first])
