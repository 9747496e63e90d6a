"""What edges carry and how a node is decided from it. The one place that knows what failure means downstream.

A step that ended well, or whose failure is ignored, lets those behind it go on; one that failed, was
cancelled or was itself skipped because of that, blocks them; one in an arm that was not chosen is pruned.
Pruned goes before blocked and is passed on at once, so that an arm not taken waits for nothing; blocked waits
until all inputs have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.pipelines.edges import EdgeKind
from penstock.pipelines.wiring import Place, Rule


class Token(StrEnum):
    """`empty` is a failure that is ignored: those behind go on and read None."""

    PASS = "pass"
    EMPTY = "empty"
    BLOCKED = "blocked"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True)
class Tally:
    """What has arrived at a node so far. `winner` is the input whose value a first or a merge has."""

    blocked: int = 0
    pruned: int = 0
    winner: str | None = None

    def plus(self, other: Tally) -> Tally:
        return Tally(self.blocked + other.blocked, self.pruned + other.pruned, self.winner or other.winner)


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
            return Tally(winner=source if place.rule is Rule.MERGE else None)
    return Tally(winner=source if place.rule in (Rule.MERGE, Rule.FIRST) else None)


def due(place: Place, state: JoinState) -> bool:
    """Whether a join is to be decided now: everything arrived, or no more can change it."""
    if state.fired:
        return False
    match place.rule:
        case Rule.FIRST if state.tally.winner is not None:
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
    if tally.winner is None and tally.blocked + tally.pruned == place.count:
        return Token.BLOCKED if tally.blocked else Token.PRUNED
    return Token.PASS
