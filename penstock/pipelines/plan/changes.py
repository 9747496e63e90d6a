"""The words of a plan: what happened, and what is to be written because of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.pipelines.model.definition import Node, Strategy
from penstock.pipelines.model.expressions import Path
from penstock.pipelines.plan.tokens import Tally
from penstock.values.status import JobStatus, Reason


class RunMode(StrEnum):
    """The mode of a run. New steps start only in the first mode; in the others they are skipped."""

    RUNNING = "running"
    HALTED = "halted"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step has ended. `stops_run`: it called `stop_run()` and succeeded.

    `kept`: it failed in a run that this one was revived from, and is not done again.
    """

    node: str
    path: Path
    status: JobStatus
    reason: Reason | None = None
    stops_run: bool = False
    kept: bool = False


@dataclass(frozen=True, slots=True)
class FiredJoin:
    """A join that is due, with the tokens that had arrived by then."""

    node: str
    path: Path
    tally: Tally


@dataclass(frozen=True, slots=True)
class Start:
    """A step to create; `delay` seconds before it may be claimed."""

    node: Node
    path: Path
    delay: float = 0.0

    @classmethod
    def of(cls, node: Node, path: Path) -> Start:
        return cls(node, path, node.options.delay or 0.0)


@dataclass(frozen=True, slots=True)
class Skip:
    """A step that ends without having started: skipped, or cancelled with its run."""

    node: Node
    path: Path
    status: JobStatus
    reason: Reason


@dataclass(frozen=True, slots=True)
class Contribution:
    """Tokens for a join. If the join has no row yet, it begins with `count` open; None: the row exists."""

    node: str
    path: Path
    tokens: int
    tally: Tally
    count: int | None


@dataclass(frozen=True, slots=True)
class OpenJoin:
    """A join over the elements of an expand, created with it: this many tokens will come, maybe none."""

    node: str
    path: Path
    tokens: int
    width: int


@dataclass(frozen=True, slots=True)
class Decided:
    """The input whose value a first or a merge takes, if it was decided without a row; this change stores it."""

    node: str
    path: Path
    winner: str


@dataclass(frozen=True, slots=True)
class Fan:
    """An expand that begins: `width` steps of the node `entry`, at `path` and the element's index."""

    node: str
    entry: str
    path: Path
    width: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A switch or an expand that needs its value; answer with `resolve`. `entered`: what its first step uses from
    outside is there."""

    node: str
    path: Path
    entered: bool = False


@dataclass(frozen=True, slots=True)
class DoorArrival:
    """All that a node waits for in its own scope has come, as `tally` says: it goes on when this door is open.

    Answer with `admit`, at once or when the door has opened. For the first step of an expand, its first element asks
    for all of them.
    """

    door: str
    path: Path
    tally: Tally


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure that counts. `detail` is there when the node is no step with an error of its own."""

    node: Node
    path: Path
    strategy: Strategy
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Losers:
    """Waits that nothing needs any more: they are skipped, also those that begin later."""

    nodes: tuple[str, ...]
    path: Path


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that follows, to be applied in one transaction. `ended`: every step of the run has ended."""

    starts: tuple[Start, ...] = ()
    skips: tuple[Skip, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    opens: tuple[OpenJoin, ...] = ()
    decided: tuple[Decided, ...] = ()
    fans: tuple[Fan, ...] = ()
    asks: tuple[Ask, ...] = ()
    door_arrivals: tuple[DoorArrival, ...] = ()
    failures: tuple[Failed, ...] = ()
    losers: tuple[Losers, ...] = ()
    mode: RunMode = RunMode.RUNNING
    ended: bool = False
