"""Decides a node from the tokens that its edges carry. The one place that knows what failure means downstream.

A step that ended well, or whose failure is ignored, lets those behind it go on; one that failed, was
cancelled or was itself skipped because of that, blocks them; one in an arm that was not chosen is pruned.
Pruned goes before blocked and is passed on at once, so that an arm not taken waits for nothing; blocked waits
until all inputs have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.pipelines.model.definition import NodeKind
from penstock.pipelines.model.edges import EdgeKind
from penstock.pipelines.model.expressions import Output
from penstock.pipelines.model.wiring import NodeWiring, Rule

SEVERAL = ","


class EdgeToken(StrEnum):
    """`empty` is a failure that is ignored: those behind go on and read None."""

    PASS = "pass"
    EMPTY = "empty"
    BLOCKED = "blocked"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True)
class Tally:
    """The count of tokens that have arrived at a node. `winner` is the input whose value a first or a merge has; of a
    place in an arm, the ignored failure that it stands for.

    Of a first that waits for several, it is the numbers of those that succeeded, in the order in which they came, such
    as ",2,0": inputs are only added, and the first `quorum` of them count.
    """

    blocked: int = 0
    pruned: int = 0
    winner: str | None = None

    def plus(self, other: Tally) -> Tally:
        winner = self.winner or other.winner
        if self.winner is not None and other.winner is not None and self.winner.startswith(SEVERAL):
            winner = self.winner + other.winner
        return Tally(self.blocked + other.blocked, self.pruned + other.pruned, winner)

    def numbers(self, most: int) -> list[int]:
        """The inputs that a first which waits for several has, in the order of the definition."""
        return winners(self.winner, most)


@dataclass(frozen=True, slots=True)
class JoinState:
    """A join as stored: what is still to come, what came, and whether it was decided."""

    open: int
    tally: Tally
    fired: bool = False


def carried(kind: EdgeKind, token: EdgeToken) -> EdgeToken:
    """The token that an edge of this kind carries. An `after` edge lets a pruned step pass."""
    if kind is EdgeKind.DONE or (kind is EdgeKind.ORDER and token is EdgeToken.PRUNED):
        return EdgeToken.PASS
    return token


def counted(place: NodeWiring, token: EdgeToken, source: str) -> Tally:
    """One token as a tally at its target."""
    match token:
        case EdgeToken.BLOCKED:
            return Tally(blocked=1)
        case EdgeToken.PRUNED:
            return Tally(pruned=1)
        case EdgeToken.EMPTY:
            # An ignored failure is not a success: it never wins a first().
            return Tally(winner=source if place.rule is Rule.MERGE or _stands_for(place, source) else None)
    if place.node.quorum > 1:
        return Tally(winner=f"{SEVERAL}{place.node.reads.index(source)}")
    return Tally(winner=source if place.rule in (Rule.MERGE, Rule.FIRST) else None)


def due(place: NodeWiring, state: JoinState) -> bool:
    """True if a join is to be decided now: all tokens arrived, or the missing ones cannot change it."""
    if state.fired:
        return False
    match place.rule:
        case Rule.FIRST if _has_enough(place, state.tally):
            return True
        case Rule.ALL if state.tally.pruned:
            return True
    return state.open == 0


def verdict(place: NodeWiring, tally: Tally) -> EdgeToken:
    """Whether the node goes on, or how it is skipped."""
    match place.rule:
        case Rule.ALL:
            if tally.pruned:
                return EdgeToken.PRUNED
            return EdgeToken.BLOCKED if tally.blocked else EdgeToken.PASS
        case Rule.COLLECT:
            # An element that was not chosen is None in the list.
            return EdgeToken.BLOCKED if tally.blocked else EdgeToken.PASS
        case Rule.CLOSE:
            return EdgeToken.PASS
    if place.count - tally.blocked - tally.pruned < place.node.quorum:
        return EdgeToken.BLOCKED if tally.blocked else EdgeToken.PRUNED
    return EdgeToken.PASS


def passed_on(place: NodeWiring, tally: Tally) -> EdgeToken:
    """The token that a node without a job passes on: empty if the node stands for an ignored failure in an arm."""
    empty = place.node.kind is NodeKind.PASS and tally.winner is not None
    return EdgeToken.EMPTY if empty else EdgeToken.PASS


def winners(text: str | None, most: int) -> list[int]:
    """The numbers of the first inputs that succeeded, sorted."""
    return sorted(map(int, (text or "").split(SEVERAL)[1 : most + 1]))


def _stands_for(place: NodeWiring, source: str) -> bool:
    """The place in an arm that has the value of a step outside of it, and nothing else."""
    return place.node.kind in (NodeKind.PASS, NodeKind.DOOR) and place.node.args == (Output(source),)


def _has_enough(place: NodeWiring, tally: Tally) -> bool:
    if place.node.quorum == 1:
        return tally.winner is not None
    return len(tally.numbers(place.node.quorum)) == place.node.quorum
