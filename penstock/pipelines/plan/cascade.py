"""Follows tokens from node to node until each has started a step, asked for a value, or come to a join.

The work is bounded by the size of the definition: a step's end touches every node at most once per path;
skipping an expand that never began touches nothing inside it; expanding is left to the caller that applies the plan.
"""

from __future__ import annotations

from collections import deque

from penstock.pipelines.model.definition import NodeKind, Strategy
from penstock.pipelines.model.edges import EdgeKind
from penstock.pipelines.model.expressions import Path
from penstock.pipelines.model.wiring import NodeWiring, Rule, Wiring
from penstock.pipelines.plan.changes import (
    Ask,
    Contribution,
    Decided,
    DoorArrival,
    Failed,
    Fan,
    Losers,
    OpenJoin,
    Plan,
    RunMode,
    Skip,
    Start,
)
from penstock.pipelines.plan.losers import losers
from penstock.pipelines.plan.tokens import EdgeToken, Tally, carried, counted, passed_on, verdict
from penstock.values.status import JobStatus, Reason

_BY_MODE = {
    RunMode.RUNNING: Reason.UPSTREAM_FAILED,
    RunMode.HALTED: Reason.RUN_HALTED,
    RunMode.STOPPED: Reason.RUN_STOPPED,
    RunMode.CANCELLED: Reason.CANCELLED,
}
_NOTHING = Tally()


class Cascade:
    """A plan in the making."""

    def __init__(self, wiring: Wiring, mode: RunMode) -> None:
        self.wiring = wiring
        self.mode = mode
        self._before = mode
        self._moves: deque[tuple[NodeWiring, Path, Tally]] = deque()
        self._waiting: dict[tuple[str, Path], tuple[int, Tally]] = {}
        self._starts: list[Start] = []
        self._skips: list[Skip] = []
        self._opens: list[OpenJoin] = []
        self._decided: list[Decided] = []
        self._fans: list[Fan] = []
        self._asks: list[Ask] = []
        self._door_arrivals: list[DoorArrival] = []
        self._failures: list[Failed] = []
        self._losers: list[Losers] = []
        self._ended = False

    @property
    def over(self) -> bool:
        """True if the run is cancelled or halted: steps that stop now add no reason to its end."""
        return self.mode in (RunMode.CANCELLED, RunMode.HALTED)

    def plan(self) -> Plan:
        """Follow everything to its end."""
        while self._moves or self._complete():
            while self._moves:
                self._decide(*self._moves.popleft())
        contributions = [
            Contribution(key, path, tokens, tally, None if place.per_element else place.count)
            for (key, path), (tokens, tally) in self._waiting.items()
            for place in (self.wiring.places[key],)
        ]
        return Plan(
            tuple(self._starts),
            tuple(self._skips),
            tuple(contributions),
            tuple(self._opens),
            tuple(self._decided),
            tuple(self._fans),
            tuple(self._asks),
            tuple(self._door_arrivals),
            tuple(self._failures),
            tuple(self._losers),
            self.mode,
            self._ended,
        )

    # what has happened

    def decide(self, key: str, path: Path, tally: Tally = _NOTHING) -> None:
        """Decide a node: all its tokens have arrived."""
        self._moves.append((self.wiring.places[key], path, tally))

    def release(self, place: NodeWiring, path: Path, token: EdgeToken) -> None:
        """A node has ended: pass its token on."""
        for edge in place.out:
            self._arrive(edge.target, edge.kind, path, token, edge.source)

    def choose(self, key: str, path: Path, arm: int) -> None:
        """A switch has decided: its arms get their tokens at once."""
        for edge in self.wiring.places[key].out:
            token = EdgeToken.PASS
            if edge.kind is EdgeKind.GATE and edge.arm != arm:
                token = EdgeToken.PRUNED
            self._arrive(edge.target, edge.kind, path, token, key)

    def open(self, key: str, path: Path, width: int) -> None:
        """An expand begins; over an empty list it ends at once."""
        place = self.wiring.places[key]
        for closer in place.closers:
            end = self.wiring.places[closer]
            if width or end.rule is Rule.COLLECT:
                self._opens.append(OpenJoin(closer, path, width * end.count, width))
        if width:
            self._fans.append(Fan(key, place.entry, path, width))
        else:
            self.pass_on(key, path, EdgeToken.PASS)

    def wait_at_doors(self, key: str, path: Path) -> bool:
        """Before an expand begins: its first step may use something from outside. False: it does not."""
        doors = self.wiring.places[self.wiring.places[key].entry].doors
        if doors:
            self._door_arrivals.append(DoorArrival(doors[0], (*path, 0), _NOTHING))
        return bool(doors)

    def enter(self, door: str, path: Path, tally: Tally) -> None:
        """A node comes through a door: to its next one, or to where it is decided."""
        place = self.wiring.places[self.wiring.places[door].node.target]
        left = place.doors[place.doors.index(door) + 1 :]
        if left and not tally.pruned:
            self._door_arrivals.append(DoorArrival(left[0], path, tally))
        elif place.node.is_entry:
            self._begin(place.node.scope[-1], path[:-1], verdict(place, tally))
        else:
            self._decide(place, path, tally, entered=True)

    def pass_on(self, key: str, path: Path, token: EdgeToken) -> None:
        """Pass a token to the nodes behind a node; behind an empty expand, to the nodes that wait for all its
        elements."""
        place = self.wiring.places[key]
        if place.node.kind is not NodeKind.EXPAND:
            self.release(place, path, token)
            return
        for closer in place.closers:
            if token is EdgeToken.PASS:
                self.decide(closer, path)
            else:
                self.skip(closer, path, token)

    def fail(
        self, key: str, path: Path, strategy: Strategy, reason: Reason, detail: str = "", kept: bool = False
    ) -> EdgeToken:
        """A node has failed; returns the token for the nodes behind it.

        A kept failure counts, but does not halt the run again.
        """
        node = self.wiring.places[key].node
        self._failures.append(Failed(node, path, strategy, reason, detail))
        if strategy is Strategy.HALT and self.mode is RunMode.RUNNING and not kept:
            self.mode = RunMode.HALTED
        return EdgeToken.EMPTY if strategy in (Strategy.IGNORE, Strategy.OPTIONAL) else EdgeToken.BLOCKED

    def stop(self) -> None:
        """`stop_run()`: what has not started is skipped."""
        if self.mode is RunMode.RUNNING:
            self.mode = RunMode.STOPPED

    def skip(self, key: str, path: Path, token: EdgeToken) -> None:
        """The node ends without having started."""
        node = self.wiring.places[key].node
        if node.kind.is_step:
            reason = Reason.BRANCH_NOT_TAKEN if token is EdgeToken.PRUNED else _BY_MODE[self.mode]
            status = JobStatus.CANCELLED if reason is Reason.CANCELLED else JobStatus.SKIPPED
            self._skips.append(Skip(node, path, status, reason))
        self.pass_on(key, path, token)

    # following

    def _arrive(self, target: str, kind: EdgeKind, path: Path, token: EdgeToken, source: str) -> None:
        place = self.wiring.places[target]
        tally = counted(place, carried(kind, token), source)
        if place.per_element:
            path = path[:-1]
        elif place.count == 1 and not place.is_door:
            self._remember(target, path, tally)
            self._moves.append((place, path, tally))
            return
        tokens, before = self._waiting.get((target, path), (0, _NOTHING))
        self._waiting[target, path] = (tokens + 1, before.plus(tally))

    def _complete(self) -> bool:
        """Decide the joins to which everything has come within this very plan; they need no row."""
        for (key, path), (tokens, tally) in list(self._waiting.items()):
            place = self.wiring.places[key]
            if tokens == place.count and not place.per_element and not place.is_door:
                del self._waiting[key, path]
                self._remember(key, path, tally)
                self._moves.append((place, path, tally))
        return bool(self._moves)

    def _remember(self, key: str, path: Path, tally: Tally) -> None:
        if tally.winner is not None:
            self._decided.append(Decided(key, path, tally.winner))

    def _begin(self, key: str, path: Path, token: EdgeToken) -> None:
        """An expand whose first step has come through its doors."""
        if token is EdgeToken.PASS and self.mode is RunMode.RUNNING:
            self._asks.append(Ask(key, path, entered=True))
        else:
            self.skip(key, path, EdgeToken.BLOCKED if token is EdgeToken.PASS else token)

    def _decide(self, place: NodeWiring, path: Path, tally: Tally, entered: bool = False) -> None:
        node = place.node
        if node.kind is NodeKind.END:
            self._ended = True
            return
        token = verdict(place, tally)
        if place.doors and not entered and token is not EdgeToken.PRUNED:
            self._door_arrivals.append(DoorArrival(place.doors[0], path, tally))
            return
        if place.rule is Rule.CLOSE:
            self.release(place, path, EdgeToken.PASS)
        elif token is not EdgeToken.PASS:
            self.skip(node.key, path, token)
        elif self.mode is not RunMode.RUNNING:
            self.skip(node.key, path, EdgeToken.BLOCKED)
        elif node.kind.is_step:
            self._starts.append(Start.of(node, path))
        elif node.kind in (NodeKind.EXPAND, NodeKind.SWITCH):
            self._asks.append(Ask(node.key, path))
        else:
            self._end_waits(place, path, tally)
            self.release(place, path, passed_on(place, tally))

    def _end_waits(self, place: NodeWiring, path: Path, tally: Tally) -> None:
        """A first that has its winner needs no more of its inputs; without one, all of them have ended."""
        if place.rule is Rule.FIRST and tally.winner is not None:
            lost = losers(self.wiring, place.node.key)
            if lost:
                self._losers.append(Losers(lost, path))
