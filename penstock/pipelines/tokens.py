"""What edges carry and how a node is decided from it. The one place that knows what failure means downstream.

A step that ended well, or whose failure is ignored, lets those behind it go on; one that failed, was
cancelled or was itself skipped because of that, blocks them; one in an arm that was not chosen is pruned.
Pruned goes before blocked and is passed on at once, so that an arm not taken waits for nothing; blocked waits
until all inputs have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.pipelines.definition import Kind
from penstock.pipelines.edges import EdgeKind
from penstock.pipelines.expressions import Output
from penstock.pipelines.wiring import Place, Rule

SEVERAL = ","


class Token(StrEnum):
    """`empty` is a failure that is ignored: those behind go on and read None."""

    PASS = "pass"
    EMPTY = "empty"
    BLOCKED = "blocked"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True)
class Tally:
    """What has arrived at a node so far. `winner` is the input whose value a first or a merge has; of a place in an
    arm, the ignored failure that it stands for.

    Of a first that waits for several, it is the numbers of those that succeeded, in the order in which they came, such
    as ",2,0": only ever added to, and the first so many count.
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


def carried(kind: EdgeKind, token: Token) -> Token:
    """What of a token crosses an edge. To come after something, it is enough that it was not chosen."""
    if kind is EdgeKind.DONE or (kind is EdgeKind.ORDER and token is Token.PRUNED):
        return Token.PASS
    return token


def counted(place: Place, token: Token, source: str) -> Tally:
    """One token as a tally at its target."""
    match token:
        case Token.BLOCKED:
            return Tally(blocked=1)
        case Token.PRUNED:
            return Tally(pruned=1)
        case Token.EMPTY:
            # An ignored failure is not a success: it never wins a first().
            return Tally(winner=source if place.rule is Rule.MERGE or _stands_for(place, source) else None)
    if place.node.quorum > 1:
        return Tally(winner=f"{SEVERAL}{place.node.reads.index(source)}")
    return Tally(winner=source if place.rule in (Rule.MERGE, Rule.FIRST) else None)


def due(place: Place, state: JoinState) -> bool:
    """Whether a join is to be decided now: everything arrived, or no more can change it."""
    if state.fired:
        return False
    match place.rule:
        case Rule.FIRST if _has_enough(place, state.tally):
            return True
        case Rule.ALL if state.tally.pruned:
            return True
    return state.open == 0


def verdict(place: Place, tally: Tally) -> Token:
    """Whether the node goes on, or how it is skipped."""
    match place.rule:
        case Rule.ALL:
            if tally.pruned:
                return Token.PRUNED
            return Token.BLOCKED if tally.blocked else Token.PASS
        case Rule.COLLECT:
            # An element that was not chosen is None in the list.
            return Token.BLOCKED if tally.blocked else Token.PASS
        case Rule.CLOSE:
            return Token.PASS
    if place.count - tally.blocked - tally.pruned < place.node.quorum:
        return Token.BLOCKED if tally.blocked else Token.PRUNED
    return Token.PASS


def passed_on(place: Place, tally: Tally) -> Token:
    """What a node without a job lets go on: in an arm, what stands for an ignored failure is as little a success."""
    empty = place.node.kind is Kind.PASS and tally.winner is not None
    return Token.EMPTY if empty else Token.PASS


def winners(text: str | None, most: int) -> list[int]:
    """The numbers of the first inputs that succeeded, sorted."""
    return sorted(map(int, (text or "").split(SEVERAL)[1 : most + 1]))


def _stands_for(place: Place, source: str) -> bool:
    """The place in an arm that has the value of a step outside of it, and nothing else."""
    return place.node.kind is Kind.PASS and place.node.args == (Output(source),)


def _has_enough(place: Place, tally: Tally) -> bool:
    if place.node.quorum == 1:
        return tally.winner is not None
    return len(tally.numbers(place.node.quorum)) == place.node.quorum
